//! Objects of masks on the device: the launchers of `kernels/objects.cu`.
//!
//! A mask's components are counted on the device, into integers of each; the host makes objects of these. The
//! kernels follow each other in a stream, and nothing waits between them, so they are recorded in a graph.
//! [`ObjectFinder::redo`] makes room: a graph that was recorded before that is not to be run any more.

#![expect(unsafe_code, reason = "a kernel's arguments carry no types, device addresses no lengths")]

use lockon_core::backend::objects::{Sums, select};
use lockon_core::config::{Connectivity, ObjectColour, ObjectSpec, Square};
use lockon_core::error::Result;
use lockon_core::frame::Size;
use lockon_core::results::Object;

use super::driver::{DeviceBuffer, Gpu, Kernel, Pinned, PinnedBuffer, Stream, arg, ptx};
use super::ncc::DeviceFrame;
use super::shared::{constant, pod_structure};

const PTX: &str = include_str!("../ptx/objects.ptx");

const THREADS: usize = constant(PTX, "OBJECT_THREADS");
const FRAGMENTS: usize = constant(PTX, "FRAGMENTS");
const TILE_ROWS: usize = constant(PTX, "TILE_ROWS");
const TILES_OF_BLOCK: usize = constant(PTX, "TILES_OF_BLOCK");
const PLACES: usize = constant(PTX, "PLACES");
const TILE_THREADS: usize = 32 * TILES_OF_BLOCK;
/// Words of a part.
const FIELDS: usize = 12;

/// Pixels of a word.
const WORD: usize = 32;

/// Components that there is room for before a mask showed that it has more: 5.5 MiB of their sums.
const CAPACITY: usize = 65_536;

/// Parts of components that there is room for behind the places of the tiles, before a mask showed that it
/// has more: 3 MiB.
const MORE_PARTS: usize = 65_536;

/// Components that come to the host at once: 704 KiB of their sums. The others are fetched when their number
/// is known.
const FIRST: usize = 8192;

/// Blocks that pass them on.
const PUBLISH_BLOCKS: usize = 16;

/// `Sums` of `kernels/objects.cu`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Counted {
    x: u64,
    y: u64,
    xx: u64,
    xy: u64,
    yy: u64,
    luma: u64,
    area: u32,
    edges: u32,
    corners: u32,
    euler: i32,
    left: u32,
    right: u32,
    top: u32,
    bottom: u32,
    min_luma: u32,
    max_luma: u32,
}

pod_structure!(Counted, 88 bytes {
    x: u64,
    y: u64,
    xx: u64,
    xy: u64,
    yy: u64,
    luma: u64,
    area: u32 = 48,
    edges: u32,
    corners: u32,
    euler: i32,
    left: u32,
    right: u32,
    top: u32,
    bottom: u32,
    min_luma: u32 = 80,
    max_luma: u32,
});

impl From<&Counted> for Sums {
    fn from(counted: &Counted) -> Self {
        let &Counted { x, y, xx, xy, yy, luma, area, edges, corners, euler, .. } = counted;
        let &Counted { left, right, top, bottom, min_luma, max_luma, .. } = counted;
        let [min_luma, max_luma] = [min_luma as u8, max_luma as u8];
        Self {
            x,
            y,
            xx,
            xy,
            yy,
            luma,
            area,
            edges,
            corners,
            euler,
            left,
            right,
            top,
            bottom,
            min_luma,
            max_luma,
        }
    }
}

/// `Bits` of `kernels/objects.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Bits {
    words: u64,
    per_row: i32,
    rows: i32,
    width: i32,
    unused: i32,
}

pod_structure!(Bits, 24 bytes { words: u64, per_row: i32 = 8, rows: i32, width: i32 = 16, unused: i32 });

/// `Parts` of `kernels/objects.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Parts {
    fields: u64,
    more: u64,
    capacity: u32,
    unused: u32,
}

pod_structure!(Parts, 24 bytes { fields: u64, more: u64 = 8, capacity: u32 = 16, unused: u32 });

/// The kernels, loaded.
struct Kernels {
    pack: Kernel,
    across: Kernel,
    down: Kernel,
    invert: Kernel,
    label_tiles: Kernel,
    join_tiles: Kernel,
    settle: Kernel,
    number: Kernel,
    tally: Kernel,
    corners: Kernel,
    border: Kernel,
    fill: Kernel,
    unpack: Kernel,
    publish: Kernel,
}

impl Kernels {
    fn load(gpu: &Gpu) -> Result<Self> {
        let module = gpu.share(if gpu.begins_early() {
            ptx!("objects_90")
        } else if gpu.info().capability.major >= 8 {
            ptx!("objects_80")
        } else {
            ptx!("objects")
        })?;
        // SAFETY: these begin with what launches.cuh asks for, and `early_kernel` makes them begin early only
        // where the module is the one for 9.0.
        let early = |name| unsafe { module.early_kernel(name) };
        Ok(Self {
            pack: early("pack")?,
            across: early("across")?,
            down: early("down")?,
            invert: early("invert")?,
            label_tiles: early("label_tiles")?,
            join_tiles: early("join_tiles")?,
            settle: early("settle")?,
            number: early("number")?,
            tally: early("tally")?,
            corners: early("corners")?,
            border: early("border")?,
            fill: early("fill")?,
            unpack: early("unpack")?,
            publish: module.kernel("publish_objects")?,
        })
    }
}

/// The components of a frame's mask: on the device, and the part that was copied to the host.
pub(super) struct ComponentList {
    /// How many there are, and how many places for parts were taken.
    counts: DeviceBuffer<u32>,
    sums: DeviceBuffer<Counted>,
    /// As they came back: both numbers, and the first of the components.
    published: PinnedBuffer<u32>,
    first: PinnedBuffer<Counted>,
    /// All, where they did not all come with the first.
    all: Option<PinnedBuffer<Counted>>,
    /// Places for parts that there were when they were counted: frames behind one that made room had less.
    places: usize,
}

impl ComponentList {
    /// For masks of `size`.
    pub(super) fn new(gpu: &Gpu, size: Size) -> Result<Self> {
        // A mask has no more components than half of its pixels.
        let most = size.area().div_ceil(2);
        Self::with_room(gpu, CAPACITY.min(most), FIRST.min(most))
    }

    /// With room for so many on the device at first, of which so many come to the host at once.
    fn with_room(gpu: &Gpu, capacity: usize, first: usize) -> Result<Self> {
        let what = "components of a mask";
        Ok(Self {
            counts: gpu.alloc(what, 2)?,
            sums: gpu.alloc(what, capacity)?,
            published: gpu.alloc_pinned(what, 2, Pinned::Plain)?,
            first: gpu.alloc_pinned(what, first, Pinned::Plain)?,
            all: None,
            places: 0,
        })
    }

    /// After [`ObjectFinder::publish`] is done: the number of components.
    pub(super) fn count(&self) -> usize {
        self.published.as_slice()[0] as usize
    }

    /// Bytes that come to the host of them.
    pub(super) fn bytes(&self) -> usize {
        let later = if self.count() > self.first.len() { self.count() } else { 0 };
        2 * size_of::<u32>() + (self.count().min(self.first.len()) + later) * size_of::<Counted>()
    }

    /// After [`ObjectFinder::publish`] is done, if all had room: all of them. Reads back by way of `stream`
    /// if they did not all come yet.
    fn read(&mut self, stream: &Stream) -> Result<&[Counted]> {
        let count = self.count();
        if count <= self.first.len() {
            return Ok(&self.first.as_slice()[..count]);
        }
        if self.all.as_ref().is_none_or(|all| all.len() < count) {
            let room = count.next_power_of_two().min(self.sums.len());
            self.all = Some(stream.gpu().alloc_pinned("components of a mask", room, Pinned::Plain)?);
        }
        let all = self.all.as_mut().expect("made above");
        // SAFETY: it is waited for in the next line, and until then `all` is borrowed.
        unsafe { stream.download(&self.sums, 0, all, count)? };
        stream.wait()?;
        Ok(&all.as_slice()[..count])
    }
}

/// Tiles of a mask.
fn tiles(size: Size) -> usize {
    size.width.div_ceil(WORD) * size.height.div_ceil(TILE_ROWS)
}

/// Finds the objects of masks of one size that lie on a device.
pub(super) struct ObjectFinder {
    gpu: Gpu,
    kernels: Kernels,
    spec: ObjectSpec,
    size: Size,
    /// The mask's bits, and room for what is made of them.
    bits: DeviceBuffer<u32>,
    spare: DeviceBuffer<u32>,
    labels: DeviceBuffer<u32>,
    /// Of each word which fragments are the first of a part.
    firsts: DeviceBuffer<u16>,
    /// Of each root the first node of its component.
    leasts: DeviceBuffer<u32>,
    /// Of each first node whether another part has it for a root.
    is_joined: DeviceBuffer<u8>,
    /// The parts of all components, and how many have their places behind those of the tiles.
    parts: DeviceBuffer<u32>,
    more: DeviceBuffer<u32>,
    /// How often the parts were given more room.
    moves: u64,
    /// Numbers of the roots; and marks of those that reach the border.
    numbers: DeviceBuffer<u32>,
    roots_of_blocks: DeviceBuffer<u32>,
    /// The components that were read last.
    components: Vec<Sums>,
    numbers_of: Vec<u32>,
}

impl ObjectFinder {
    /// For masks of `size`.
    ///
    /// # Errors
    /// As [`Sums::check`], and those of the device.
    pub(super) fn new(gpu: &Gpu, spec: &ObjectSpec, size: Size) -> Result<Self> {
        Self::with_room(gpu, spec, size, MORE_PARTS)
    }

    /// With room for so many parts behind those that have their places.
    fn with_room(gpu: &Gpu, spec: &ObjectSpec, size: Size, more_parts: usize) -> Result<Self> {
        Sums::check(size)?;
        let words = size.width.div_ceil(WORD) * size.height;
        let nodes = words * FRAGMENTS;
        Ok(Self {
            gpu: gpu.clone(),
            kernels: Kernels::load(gpu)?,
            spec: *spec,
            size,
            bits: gpu.alloc("bits of a mask", words)?,
            spare: gpu.alloc("bits of a mask", words)?,
            labels: gpu.alloc("labels of a mask", nodes)?,
            firsts: gpu.alloc("labels of a mask", words)?,
            leasts: gpu.alloc("labels of a mask", nodes)?,
            is_joined: gpu.alloc("labels of a mask", nodes)?,
            parts: gpu.alloc("parts of components", FIELDS * (tiles(size) * PLACES + more_parts))?,
            more: gpu.alloc("parts of components", 1)?,
            moves: 0,
            numbers: gpu.alloc("numbers of components", nodes)?,
            roots_of_blocks: gpu.alloc("counts of components", words.div_ceil(THREADS))?,
            components: Vec::new(),
            numbers_of: Vec::new(),
        })
    }

    /// The size of its masks.
    pub(super) fn size(&self) -> Size {
        self.size
    }

    /// Takes the objects of `mask`, rows of `pitch` bytes whose pixels of 128 or more are white, and cleans
    /// them, without waiting.
    ///
    /// # Panics
    /// If the mask is of another size than this was made for.
    pub(super) fn clean(&mut self, stream: &Stream, mask: &DeviceBuffer<u8>, pitch: usize) -> Result<()> {
        let Size { width, height } = self.size;
        assert!(mask.len() >= pitch * (height - 1) + width && pitch >= width, "a mask of another size");
        let (from, pitch, columns) = (mask.address(), pitch as i32, width as i32);
        let is_black = i32::from(self.spec.colour == ObjectColour::Black);
        let (to, per_row, more) = (self.bits.address(), width.div_ceil(WORD) as i32, self.more.address());
        let mut args =
            [arg(&from), arg(&pitch), arg(&columns), arg(&is_black), arg(&to), arg(&per_row), arg(&more)];
        // SAFETY: the arguments of `pack`. The mask has `height` rows of `width` bytes, as asserted, and the
        // bits `per_row` words for each.
        unsafe { stream.launch(&self.kernels.pack, self.fours(), [THREADS, 1, 1], 0, &mut args)? };
        self.open_close_fill(stream)
    }

    fn open_close_fill(&mut self, stream: &Stream) -> Result<()> {
        let squares = [(self.spec.cleaning.open, [0, 1]), (self.spec.cleaning.close, [1, 0])];
        for (square, flips) in squares {
            let Some(square) = square else { continue };
            for flip in flips {
                self.erode(stream, square, flip)?;
            }
        }
        if !self.spec.cleaning.fill_holes {
            return Ok(());
        }
        let bits = self.bits(&self.bits);
        let to = self.spare.address();
        // SAFETY: the arguments of `invert`, which writes a word for each.
        unsafe { self.launch(stream, &self.kernels.invert, &mut [arg(&bits), arg(&to)])? };
        self.label(stream, self.spec.connectivity.of_background(), None)?;
        stream.clear(&mut self.numbers, self.labels.len())?;
        let background = self.bits(&self.spare);
        let (labels, marks, to) = (self.labels.address(), self.numbers.address(), self.bits.address());
        // SAFETY: the arguments of both: labels and marks have all nodes, the bits all words.
        unsafe {
            self.launch(stream, &self.kernels.border, &mut [arg(&background), arg(&labels), arg(&marks)])?;
            let mut args = [arg(&background), arg(&labels), arg(&marks), arg(&to)];
            self.launch(stream, &self.kernels.fill, &mut args)
        }
    }

    /// Erodes objects (flip 0) or their background (1) by a square.
    fn erode(&self, stream: &Stream, square: Square, flip: i32) -> Result<()> {
        let radius = square.radius() as i32;
        let (first, to_first) = (self.bits(&self.bits), self.spare.address());
        let (second, to_second) = (self.bits(&self.spare), self.bits.address());
        // SAFETY: the arguments of `across` and `down`, which write a word for each.
        unsafe {
            let mut args = [arg(&first), arg(&radius), arg(&flip), arg(&to_first)];
            self.launch(stream, &self.kernels.across, &mut args)?;
            let mut args = [arg(&second), arg(&radius), arg(&flip), arg(&to_second)];
            self.launch(stream, &self.kernels.down, &mut args)
        }
    }

    /// Joins the nodes of the bits, and counts their parts, with their luma in `frame`; without that, joins
    /// those of the background, in the spare room. Labels lead to roots.
    fn label(
        &mut self,
        stream: &Stream,
        connectivity: Connectivity,
        frame: Option<&DeviceFrame>,
    ) -> Result<()> {
        let bits = self.bits(if frame.is_some() { &self.bits } else { &self.spare });
        let is_eight = i32::from(connectivity == Connectivity::Eight);
        let (labels, firsts, leasts) = (self.labels.address(), self.firsts.address(), self.leasts.address());
        let (joined, roots, parts) = (self.is_joined.address(), self.roots_of_blocks.address(), self.parts());
        let (luma, pitch) = frame.map_or((0, 0), |frame| (frame.pixels.address(), frame.pitch as i32));
        let Size { width, height } = self.size;
        let [across, down] = [width.div_ceil(WORD).div_ceil(TILES_OF_BLOCK), height.div_ceil(TILE_ROWS)];
        // SAFETY: the arguments of both: labels and marks have all nodes, firsts all words, `roots_of_blocks`
        // all blocks; the frame has as many rows as the mask, and room for all words of each, as `count`
        // asserts.
        unsafe {
            let mut args = [
                arg(&bits),
                arg(&is_eight),
                arg(&labels),
                arg(&firsts),
                arg(&leasts),
                arg(&joined),
                arg(&roots),
                arg(&luma),
                arg(&pitch),
                arg(&parts),
            ];
            stream.launch(
                &self.kernels.label_tiles,
                [across, down, 1],
                [TILE_THREADS, 1, 1],
                0,
                &mut args,
            )?;
            let mut args = [arg(&bits), arg(&is_eight), arg(&labels), arg(&joined)];
            stream.launch(&self.kernels.join_tiles, [across, down, 2], [TILE_THREADS, 1, 1], 0, &mut args)
        }
    }

    fn parts(&self) -> Parts {
        let (fields, more) = (self.parts.address(), self.more.address());
        Parts { fields, more, capacity: (self.parts.len() / FIELDS) as u32, unused: 0 }
    }

    /// The grid of the kernels with a thread for four pixels.
    fn fours(&self) -> [usize; 3] {
        [self.size.height, (8 * self.size.width.div_ceil(WORD)).div_ceil(THREADS), 1]
    }

    /// Counts the components of the mask that was cleaned last into `list`, with their luma in `frame`,
    /// without waiting.
    ///
    /// # Panics
    /// If the frame is of another size than this was made for.
    pub(super) fn count(
        &mut self,
        stream: &Stream,
        frame: &DeviceFrame,
        list: &mut ComponentList,
    ) -> Result<()> {
        assert_eq!(frame.size, self.size, "a frame of another size");
        // Words of luma are read whole.
        assert!(frame.pitch.is_multiple_of(WORD), "rows of {} bytes", frame.pitch);
        let connectivity = self.spec.connectivity;
        list.places = self.parts.len() / FIELDS;
        self.label(stream, connectivity, Some(frame))?;
        let bits = self.bits(&self.bits);
        let (labels, firsts, leasts) = (self.labels.address(), self.firsts.address(), self.leasts.address());
        let (joined, roots, parts) = (self.is_joined.address(), self.roots_of_blocks.address(), self.parts());
        let (numbers, sums, counts) = (self.numbers.address(), list.sums.address(), list.counts.address());
        let (capacity, more) = (list.sums.len() as u32, self.more.address());
        let places = (tiles(self.size) * PLACES).div_ceil(THREADS);
        // SAFETY: the arguments of them. Labels and numbers have all nodes, firsts all words; sums have
        // `capacity`.
        unsafe {
            let mut args = [arg(&bits), arg(&labels), arg(&firsts), arg(&leasts)];
            self.launch(stream, &self.kernels.settle, &mut args)?;
            let mut args = [
                arg(&bits),
                arg(&labels),
                arg(&firsts),
                arg(&leasts),
                arg(&joined),
                arg(&roots),
                arg(&numbers),
                arg(&sums),
                arg(&capacity),
                arg(&more),
                arg(&counts),
            ];
            self.launch(stream, &self.kernels.number, &mut args)?;
            let mut args = [
                arg(&bits),
                arg(&labels),
                arg(&joined),
                arg(&numbers),
                arg(&parts),
                arg(&sums),
                arg(&capacity),
            ];
            stream.launch(&self.kernels.tally, [places, 1, 1], [THREADS, 1, 1], 0, &mut args)?;
            if connectivity == Connectivity::Four {
                let mut args = [arg(&bits), arg(&labels), arg(&numbers), arg(&sums), arg(&capacity)];
                self.launch(stream, &self.kernels.corners, &mut args)?;
            }
        }
        Ok(())
    }

    /// How often it was given more room: a graph that was recorded before is not to be run any more.
    pub(super) fn moves(&self) -> u64 {
        self.moves
    }

    /// After [`Self::publish`] is done: true if all components and their parts had room. If not,
    /// [`Self::redo`] counts again, with a list that lies elsewhere: graphs that write to this one must not
    /// run any more.
    pub(super) fn had_room(&self, list: &ComponentList) -> bool {
        list.count() <= list.sums.len() && self.places(list) <= list.places
    }

    /// How many places for parts the mask of a list takes.
    fn places(&self, list: &ComponentList) -> usize {
        tiles(self.size) * PLACES + list.published.as_slice()[1] as usize
    }

    /// Makes room for as many as there were, and a fourth more.
    fn make_room(&mut self, list: &mut ComponentList) -> Result<()> {
        let (count, places) = (list.count(), self.places(list));
        if count > list.sums.len() {
            list.sums = self.gpu.alloc("components of a mask", count + count / 4)?;
        }
        if FIELDS * places > self.parts.len() {
            self.parts = self.gpu.alloc("parts of components", FIELDS * (places + places / 4))?;
            self.moves += 1;
        }
        Ok(())
    }

    /// Starts passing the number of components, and the first of them, to the host.
    ///
    /// # Safety
    /// Until that is done (known from a wait for `stream` or for a later event in it):
    /// - `list` is not dropped,
    /// - it is neither read nor given more room.
    pub(super) unsafe fn publish(&self, stream: &Stream, list: &mut ComponentList) -> Result<()> {
        let (count, sums) = (list.counts.address(), list.sums.address());
        let (host_count, host_sums) = (list.published.device_address(), list.first.device_address());
        let room = list.first.len().min(list.sums.len()) as u32;
        let mut args = [arg(&count), arg(&sums), arg(&host_count), arg(&host_sums), arg(&room)];
        // SAFETY: the arguments of `publish_objects`; both lists have room for so many. The caller keeps
        // both.
        unsafe { stream.launch(&self.kernels.publish, [PUBLISH_BLOCKS, 1, 1], [THREADS, 1, 1], 0, &mut args) }
    }

    /// Cleans and counts again where the components of a published list did not have room, until they have,
    /// and waits: mask and frame are unchanged. Returns how often.
    pub(super) fn redo(
        &mut self,
        stream: &Stream,
        mask: &DeviceBuffer<u8>,
        pitch: usize,
        frame: &DeviceFrame,
        list: &mut ComponentList,
    ) -> Result<u64> {
        let mut times = 0;
        while !self.had_room(list) {
            self.make_room(list)?;
            self.clean(stream, mask, pitch)?;
            self.count(stream, frame, list)?;
            // SAFETY: it is waited for in the next line, and until then the list is borrowed.
            unsafe { self.publish(stream, list)? };
            stream.wait()?;
            times += 1;
        }
        Ok(times)
    }

    /// Writes the objects of a published list whose components had room: those that the filters let through,
    /// the largest if a maximum number is set. Returns how many are beyond the maximum. Fetches those that
    /// did not all come yet by way of `stream`.
    ///
    /// Uses the threads of the rayon pool that it is called in.
    pub(super) fn objects(
        &mut self,
        stream: &Stream,
        list: &mut ComponentList,
        objects: &mut Vec<Object>,
    ) -> Result<u64> {
        let Self { spec, size, components, numbers_of, .. } = self;
        components.clear();
        components.extend(list.read(stream)?.iter().map(Sums::from));
        numbers_of.clear();
        numbers_of.extend(0..components.len() as u32);
        Ok(select(numbers_of, |at| &components[at as usize], spec, *size, objects))
    }

    /// Writes the mask after cleaning, in its own colours, without waiting: rows of `pitch` bytes.
    ///
    /// # Panics
    /// If it has no room.
    pub(super) fn cleaned(&self, stream: &Stream, mask: &mut DeviceBuffer<u8>, pitch: usize) -> Result<()> {
        let Size { width, height } = self.size;
        assert!(mask.len() >= pitch * (height - 1) + width && pitch >= width, "a mask of another size");
        let bits = self.bits(&self.bits);
        let is_black = i32::from(self.spec.colour == ObjectColour::Black);
        let (to, pitch) = (mask.address(), pitch as i32);
        let mut args = [arg(&bits), arg(&is_black), arg(&to), arg(&pitch)];
        // SAFETY: the arguments of `unpack`, which writes `height` rows of `width` bytes, for which there is
        // room, as asserted.
        unsafe { stream.launch(&self.kernels.unpack, self.fours(), [THREADS, 1, 1], 0, &mut args) }
    }

    fn bits(&self, words: &DeviceBuffer<u32>) -> Bits {
        let Size { width, height } = self.size;
        let per_row = width.div_ceil(WORD) as i32;
        Bits { words: words.address(), per_row, rows: height as i32, width: width as i32, unused: 0 }
    }

    /// Launches a kernel with a thread for each word.
    ///
    /// # Safety
    /// The arguments are the kernel's, and what they point to has room for what it reads and writes.
    unsafe fn launch(
        &self,
        stream: &Stream,
        kernel: &Kernel,
        args: &mut [*mut std::ffi::c_void],
    ) -> Result<()> {
        let blocks = self.bits.len().div_ceil(THREADS);
        // SAFETY: the caller's.
        unsafe { stream.launch(kernel, [blocks, 1, 1], [THREADS, 1, 1], 0, args) }
    }
}

#[cfg(test)]
mod tests {
    use lockon_core::backend::cpu;
    use lockon_core::config::{Bounds, Cleaning};
    use lockon_core::frame::{Plane, PlaneRef};
    use lockon_core::reference;

    use super::*;
    use crate::driver::Priority;
    use crate::testing::{self, Random};

    /// A mask of one of the kinds that break things.
    fn mask(random: &mut Random, size: Size) -> Plane {
        let (share, cell, kind) = (random.below(101), 1 + random.below(9), random.below(8));
        let noise: Vec<bool> = (0..size.area()).map(|_| random.below(100) < share).collect();
        let is_white = |x: usize, y: usize| match kind {
            0 | 1 => noise[y * size.width + x],
            2 | 3 => noise[y / cell * size.width + x / cell],
            4 => true,
            5 => [x, y][cell % 2].is_multiple_of(1 + cell / 2),
            6 => (x + y).is_multiple_of(2),
            _ => {
                // Frames in each other, with a gap in each.
                let depth = x.min(y).min(size.width - 1 - x).min(size.height - 1 - y);
                depth.is_multiple_of(2) && (cell.is_multiple_of(2) || x != depth || y != depth + 1)
            }
        };
        let data = (0..size.area()).map(|i| if is_white(i % size.width, i / size.width) { 255 } else { 0 });
        Plane::from_vec(data.collect(), size)
    }

    fn spec(random: &mut Random) -> ObjectSpec {
        let square = |random: &mut Random| {
            (random.below(3) == 0).then(|| (2 * random.below(3) + 3).to_string().parse().unwrap())
        };
        ObjectSpec {
            colour: [ObjectColour::White, ObjectColour::Black][random.below(2)],
            connectivity: [Connectivity::Four, Connectivity::Eight][random.below(2)],
            cleaning: Cleaning {
                open: square(random),
                close: square(random),
                fill_holes: random.below(3) == 0,
            },
            area: Bounds { min: (random.below(4) == 0).then(|| random.below(9)), max: None },
            size: Bounds::default(),
            max: (random.below(4) == 0).then(|| random.below(30)),
            ..ObjectSpec::default()
        }
    }

    /// A mask on the device, with rows longer than they are wide and poisoned behind.
    fn upload(gpu: &Gpu, stream: &Stream, mask: PlaneRef<'_>, pitch: usize) -> DeviceBuffer<u8> {
        let mut bytes = vec![0xA5; pitch * mask.size().height];
        for (to, row) in bytes.chunks_mut(pitch).zip(mask.rows()) {
            to[..row.len()].copy_from_slice(row);
        }
        let mut buffer = gpu.alloc("a mask", bytes.len()).unwrap();
        stream.upload_now(&bytes, &mut buffer).unwrap();
        buffer
    }

    /// Objects, by way of `list`.
    fn find(
        finder: &mut ObjectFinder,
        stream: &Stream,
        (mask, pitch): (&DeviceBuffer<u8>, usize),
        frame: &DeviceFrame,
        list: &mut ComponentList,
        objects: &mut Vec<Object>,
    ) -> u64 {
        finder.clean(stream, mask, pitch).unwrap();
        finder.count(stream, frame, list).unwrap();
        // SAFETY: it is waited for in the next line, and until then the list is borrowed.
        unsafe { finder.publish(stream, list).unwrap() };
        stream.wait().unwrap();
        finder.redo(stream, mask, pitch, frame, list).unwrap();
        finder.objects(stream, list, objects).unwrap()
    }

    #[track_caller]
    fn assert_same(
        gpu: &Gpu,
        stream: &Stream,
        mask: &Plane,
        luma: &Plane,
        spec: &ObjectSpec,
        padding: usize,
    ) {
        let size = mask.size();
        let expected = reference::objects::find(mask.as_ref(), luma.as_ref(), spec);
        let frame = testing::upload(gpu, stream, luma.as_ref());
        let pitch = size.width + padding;
        let on_device = upload(gpu, stream, mask.as_ref(), pitch);
        let mut finder = ObjectFinder::with_room(gpu, spec, size, 16).unwrap();
        let mut list = ComponentList::with_room(gpu, 16, 7).unwrap();
        // The second run starts from what the first left behind, and has room.
        for run in 0..2 {
            let what = format!("{size} {spec:?}, run {run}");
            let mut objects = Vec::new();
            let more = find(&mut finder, stream, (&on_device, pitch), &frame, &mut list, &mut objects);
            let mut cleaned = upload(gpu, stream, luma.as_ref(), pitch);
            finder.cleaned(stream, &mut cleaned, pitch).unwrap();
            let mut bytes = vec![0; cleaned.len()];
            stream.download_now(&cleaned, &mut bytes).unwrap();
            let is_same = bytes.chunks(pitch).zip(expected.mask.as_ref().rows()).all(|(got, row)| {
                got[..size.width] == *row && got[size.width..].iter().all(|&byte| byte == 0xA5)
            });
            assert!(is_same, "masks: {what}");
            assert_eq!((more, objects.len()), (expected.more, expected.objects.len()), "{what}");
            for (got, expected) in objects.iter().zip(&expected.objects) {
                assert_eq!(got, expected, "{what}");
            }
        }
    }

    #[test]
    fn objects_are_the_references_on_2000_random_masks() {
        let Some(gpu) = testing::gpu() else { return };
        let stream = gpu.stream(Priority::Normal).unwrap();
        for case in 0..2000 {
            let mut random = Random(case);
            random.next();
            let most = if case % 40 == 0 {
                (513, 257)
            } else if case % 4 == 0 {
                (150, 90)
            } else {
                (70, 20)
            };
            let size = Size::new(1 + random.below(most.0), 1 + random.below(most.1));
            let (mask, luma, spec) = (mask(&mut random, size), random.picture(size), spec(&mut random));
            assert_same(&gpu, &stream, &mask, &luma, &spec, random.below(40));
        }
        gpu.check_dropped().unwrap();
    }

    #[test]
    fn masks_of_one_pixel_or_line_have_the_references_objects() {
        let Some(gpu) = testing::gpu() else { return };
        let stream = gpu.stream(Priority::Normal).unwrap();
        let mut random = Random(99);
        for (w, h) in [(1, 1), (1, 70), (70, 1), (32, 2), (33, 3), (31, 3), (64, 1), (1025, 1)] {
            for value in [255, 0] {
                let size = Size::new(w, h);
                let (mask, luma) = (Plane::from_vec(vec![value; size.area()], size), random.picture(size));
                for _ in 0..8 {
                    assert_same(&gpu, &stream, &mask, &luma, &spec(&mut random), 3);
                }
            }
        }
    }

    #[test]
    fn large_squares_open_and_close_as_the_reference() {
        let Some(gpu) = testing::gpu() else { return };
        let stream = gpu.stream(Priority::Normal).unwrap();
        let mut random = Random(5);
        for side in ["31", "63", "65", "129", "255"] {
            let size = Size::new(150 + random.below(60), 40 + random.below(60));
            let holes: Vec<(usize, usize)> = (0..3).map(|_| (random.below(210), random.below(100))).collect();
            let data = (0..size.area())
                .map(|i| if holes.contains(&(i % size.width, i / size.width)) { 0 } else { 255 });
            let (mask, luma) = (Plane::from_vec(data.collect(), size), random.picture(size));
            let square = Some(side.parse().unwrap());
            for colour in [ObjectColour::White, ObjectColour::Black] {
                for cleaning in [
                    Cleaning { open: square, ..Cleaning::default() },
                    Cleaning { close: square, ..Cleaning::default() },
                ] {
                    let spec = ObjectSpec { colour, cleaning, ..ObjectSpec::default() };
                    assert_same(&gpu, &stream, &mask, &luma, &spec, 5);
                }
            }
        }
    }

    /// A line of one pixel that turns inwards, three pixels away from itself.
    fn spiral(size: Size) -> Plane {
        let mut mask = Plane::new(size);
        let mut draw = |x: usize, y: usize| mask.data_mut()[y * size.width + x] = 255;
        let (mut left, mut top, mut right, mut bottom) = (0, 0, size.width, size.height);
        while right > left + 4 && bottom > top + 4 {
            (left.saturating_sub(4)..right).for_each(|x| draw(x, top));
            (top..bottom).for_each(|y| draw(right - 1, y));
            (left..right).for_each(|x| draw(x, bottom - 1));
            (top + 4..bottom).for_each(|y| draw(left, y));
            (left, top, right, bottom) = (left + 4, top + 4, right - 4, bottom - 4);
        }
        mask
    }

    #[test]
    fn objects_of_whole_frames_are_the_cpus() {
        let Some(gpu) = testing::gpu() else { return };
        let stream = gpu.stream(Priority::Normal).unwrap();
        let mut random = Random(21);
        let size = Size::new(1920, 1080);
        let luma = random.picture(size);
        let frame = testing::upload(&gpu, &stream, luma.as_ref());
        let of = |is_white: &mut dyn FnMut(usize, usize) -> bool| {
            let data =
                (0..size.area()).map(|i| if is_white(i % size.width, i / size.width) { 255 } else { 0 });
            Plane::from_vec(data.collect(), size)
        };
        // Noise, letters, rings in each other, one object a pixel, and one that passes all tiles.
        let masks = [
            of(&mut |_, _| random.below(2) == 0),
            of(&mut |x, y| x * y % 97 < 13 && x % 16 < 11 && y % 24 < 15),
            of(&mut |x, y| x.abs_diff(960).max(y.abs_diff(540)).is_multiple_of(2)),
            of(&mut |x, y| (x + y).is_multiple_of(2)),
            spiral(size),
        ];
        for mask in &masks {
            for connectivity in [Connectivity::Four, Connectivity::Eight] {
                let spec = ObjectSpec { connectivity, ..ObjectSpec::default() };
                let on_device = upload(&gpu, &stream, mask.as_ref(), size.width);
                let mut finder = ObjectFinder::new(&gpu, &spec, size).unwrap();
                let (mut objects, mut expected) = (Vec::new(), Vec::new());
                let mut list = ComponentList::new(&gpu, size).unwrap();
                let on_device = (&on_device, size.width);
                find(&mut finder, &stream, on_device, &frame, &mut list, &mut objects);
                let mut cpu = cpu::objects::ObjectFinder::new(&spec, size, None).unwrap();
                cpu.clean(mask.as_ref()).unwrap();
                cpu.find(luma.as_ref(), &mut expected).unwrap();
                assert!(objects == expected, "{connectivity:?}: {} and {}", objects.len(), expected.len());
            }
        }
    }
}
