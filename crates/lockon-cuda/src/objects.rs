//! Objects of masks on the device: the launchers of `kernels/objects.cu`.
//!
//! A mask's components are counted on the device, into integers of each; the host makes objects of these. The
//! kernels follow each other in a stream, and nothing waits between them, so they can be recorded in a graph.
//! [`ObjectFinder::objects`] may make room: a graph that was recorded before that is not to be run any more.
//!
//! Only `lockon-bench` uses them so far: in a run the host finds objects.

#![expect(unsafe_code, reason = "a kernel's arguments carry no types, device addresses no lengths")]

use lockon_core::backend::objects::{Sums, select};
use lockon_core::config::{Connectivity, ObjectColour, ObjectSpec, Square};
use lockon_core::error::Result;
use lockon_core::frame::Size;
use lockon_core::results::Object;

use super::driver::{DeviceBuffer, Gpu, Kernel, Stream, arg, ptx};
use super::ncc::DeviceFrame;
use super::shared::{constant, pod_structure};

const PTX: &str = include_str!("../ptx/objects.ptx");

const THREADS: usize = constant(PTX, "OBJECT_THREADS");
const FRAGMENTS: usize = constant(PTX, "FRAGMENTS");

/// Pixels of a word.
const WORD: usize = 32;

/// Components that there is room for before a mask showed that it has more: 5.5 MiB of their sums.
const CAPACITY: usize = 65_536;

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

/// The kernels, loaded.
struct Kernels {
    pack: Kernel,
    across: Kernel,
    down: Kernel,
    invert: Kernel,
    begin: Kernel,
    join: Kernel,
    flatten: Kernel,
    number: Kernel,
    tally: Kernel,
    border: Kernel,
    fill: Kernel,
    unpack: Kernel,
}

impl Kernels {
    fn load(gpu: &Gpu) -> Result<Self> {
        let module =
            gpu.share(if gpu.info().capability.major >= 8 { ptx!("objects_80") } else { ptx!("objects") })?;
        Ok(Self {
            pack: module.kernel("pack")?,
            across: module.kernel("across")?,
            down: module.kernel("down")?,
            invert: module.kernel("invert")?,
            begin: module.kernel("begin")?,
            join: module.kernel("join")?,
            flatten: module.kernel("flatten")?,
            number: module.kernel("number")?,
            tally: module.kernel("tally")?,
            border: module.kernel("border")?,
            fill: module.kernel("fill")?,
            unpack: module.kernel("unpack")?,
        })
    }
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
    /// Numbers of the roots; and marks of those that reach the border.
    numbers: DeviceBuffer<u32>,
    roots_of_blocks: DeviceBuffer<u32>,
    /// How many components there are.
    count: DeviceBuffer<u32>,
    sums: DeviceBuffer<Counted>,
}

impl ObjectFinder {
    /// For masks of `size`.
    ///
    /// # Errors
    /// As [`Sums::check`], and those of the device.
    pub(super) fn new(gpu: &Gpu, spec: &ObjectSpec, size: Size) -> Result<Self> {
        Self::with_room(gpu, spec, size, CAPACITY)
    }

    /// With room for so many components at first.
    fn with_room(gpu: &Gpu, spec: &ObjectSpec, size: Size, components: usize) -> Result<Self> {
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
            numbers: gpu.alloc("numbers of components", nodes)?,
            roots_of_blocks: gpu.alloc("counts of components", words.div_ceil(THREADS))?,
            count: gpu.alloc("counts of components", 1)?,
            sums: gpu.alloc("sums of components", components.min(nodes))?,
        })
    }

    /// The size of its masks.
    pub(super) fn size(&self) -> Size {
        self.size
    }

    /// Takes the objects of `mask`, rows of `pitch` bytes whose pixels of 128 or more are white, cleans them
    /// and counts their components, with their luma in `frame`. Does not wait; [`Self::objects`] reads what
    /// is counted.
    ///
    /// # Panics
    /// If mask or frame are of another size than this was made for.
    pub(super) fn run(
        &mut self,
        stream: &Stream,
        mask: &DeviceBuffer<u8>,
        pitch: usize,
        frame: &DeviceFrame,
    ) -> Result<()> {
        let Size { width, height } = self.size;
        assert_eq!(frame.size, self.size, "a frame of another size");
        assert!(mask.len() >= pitch * (height - 1) + width && pitch >= width, "a mask of another size");
        let (from, pitch, columns) = (mask.address(), pitch as i32, width as i32);
        let is_black = i32::from(self.spec.colour == ObjectColour::Black);
        let (to, per_row) = (self.bits.address(), width.div_ceil(WORD) as i32);
        let mut args = [arg(&from), arg(&pitch), arg(&columns), arg(&is_black), arg(&to), arg(&per_row)];
        let grid = [height, (8 * per_row as usize).div_ceil(THREADS), 1];
        // SAFETY: the arguments of `pack`. The mask has `height` rows of `width` bytes, as asserted, and the
        // bits `per_row` words for each.
        unsafe { stream.launch(&self.kernels.pack, grid, [THREADS, 1, 1], 0, &mut args)? };
        self.clean(stream)?;
        self.label(stream, self.spec.connectivity, false)?;
        self.count(stream, frame)
    }

    /// Opens, closes and fills.
    fn clean(&mut self, stream: &Stream) -> Result<()> {
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
        self.label(stream, self.spec.connectivity.of_background(), true)?;
        stream.clear(&mut self.numbers, self.labels.len())?;
        let background = self.bits(&self.spare);
        let (labels, marks, to) = (self.labels.address(), self.numbers.address(), self.bits.address());
        // SAFETY: the arguments of `border` and `fill`: labels and marks have all nodes, the bits all words.
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

    /// Labels the components of the bits, or of those in the spare room.
    fn label(&mut self, stream: &Stream, connectivity: Connectivity, is_spare: bool) -> Result<()> {
        let bits = self.bits(if is_spare { &self.spare } else { &self.bits });
        let is_eight = i32::from(connectivity == Connectivity::Eight);
        let (labels, roots) = (self.labels.address(), self.roots_of_blocks.address());
        // SAFETY: the arguments of the three: labels has all nodes, `roots_of_blocks` all blocks.
        unsafe {
            self.launch(stream, &self.kernels.begin, &mut [arg(&bits), arg(&labels)])?;
            self.launch(stream, &self.kernels.join, &mut [arg(&bits), arg(&is_eight), arg(&labels)])?;
            self.launch(stream, &self.kernels.flatten, &mut [arg(&bits), arg(&labels), arg(&roots)])
        }
    }

    /// Numbers the components, and counts the integers of those that there is room for.
    fn count(&mut self, stream: &Stream, frame: &DeviceFrame) -> Result<()> {
        assert_eq!(frame.size, self.size, "a frame of another size");
        // Words of luma are read whole.
        assert!(frame.pitch.is_multiple_of(WORD), "rows of {} bytes", frame.pitch);
        let bits = self.bits(&self.bits);
        let is_eight = i32::from(self.spec.connectivity == Connectivity::Eight);
        let (labels, roots) = (self.labels.address(), self.roots_of_blocks.address());
        let (numbers, sums, count) = (self.numbers.address(), self.sums.address(), self.count.address());
        let capacity = self.sums.len() as u32;
        let (luma, pitch) = (frame.pixels.address(), frame.pitch as i32);
        // SAFETY: the arguments of both. Labels and numbers have all nodes; sums have `capacity`; the frame
        // has as many rows as the mask, and room for all words of each, as asserted.
        unsafe {
            let mut args = [
                arg(&bits),
                arg(&labels),
                arg(&roots),
                arg(&numbers),
                arg(&sums),
                arg(&capacity),
                arg(&count),
            ];
            self.launch(stream, &self.kernels.number, &mut args)?;
            let mut args = [
                arg(&bits),
                arg(&is_eight),
                arg(&labels),
                arg(&numbers),
                arg(&luma),
                arg(&pitch),
                arg(&sums),
                arg(&capacity),
            ];
            self.launch(stream, &self.kernels.tally, &mut args)
        }
    }

    /// Writes the objects of the mask of the last [`Self::run`], and waits for them: those that the filters
    /// let through, the largest if a maximum number is set. Returns how many are beyond the maximum. Makes
    /// room and counts again where there were more components than room. `frame` is that of the last run,
    /// unchanged.
    ///
    /// # Panics
    /// If the frame is of another size.
    pub(super) fn objects(
        &mut self,
        stream: &Stream,
        frame: &DeviceFrame,
        objects: &mut Vec<Object>,
    ) -> Result<u64> {
        let mut count = [0];
        stream.download_now(&self.count, &mut count)?;
        let components = count[0] as usize;
        if components > self.sums.len() {
            let room = (components + components / 4).min(self.labels.len());
            self.sums = self.gpu.alloc("sums of components", room)?;
            self.count(stream, frame)?;
        }
        let mut counted = vec![Counted::default(); components];
        stream.download_now(&self.sums, &mut counted)?;
        let all: Vec<Sums> = counted.iter().map(Sums::from).collect();
        let mut numbers = (0..components as u32).collect();
        Ok(select(&mut numbers, |at| &all[at as usize], &self.spec, self.size, objects))
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
        unsafe { self.launch(stream, &self.kernels.unpack, &mut args) }
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
        // The second run starts from what the first left behind, and has room.
        for run in 0..2 {
            let what = format!("{size} {spec:?}, run {run}");
            let mut objects = Vec::new();
            finder.run(stream, &on_device, pitch, &frame).unwrap();
            let more = finder.objects(stream, &frame, &mut objects).unwrap();
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
        // Noise, letters, rings in each other, and one object a pixel.
        let masks = [
            of(&mut |_, _| random.below(2) == 0),
            of(&mut |x, y| x * y % 97 < 13 && x % 16 < 11 && y % 24 < 15),
            of(&mut |x, y| x.abs_diff(960).max(y.abs_diff(540)).is_multiple_of(2)),
            of(&mut |x, y| (x + y).is_multiple_of(2)),
        ];
        for mask in &masks {
            for connectivity in [Connectivity::Four, Connectivity::Eight] {
                let spec = ObjectSpec { connectivity, ..ObjectSpec::default() };
                let on_device = upload(&gpu, &stream, mask.as_ref(), size.width);
                let mut finder = ObjectFinder::new(&gpu, &spec, size).unwrap();
                let (mut objects, mut expected) = (Vec::new(), Vec::new());
                finder.run(&stream, &on_device, size.width, &frame).unwrap();
                finder.objects(&stream, &frame, &mut objects).unwrap();
                let mut cpu = cpu::objects::ObjectFinder::new(&spec, size, None).unwrap();
                cpu.clean(mask.as_ref()).unwrap();
                cpu.find(luma.as_ref(), &mut expected).unwrap();
                assert!(objects == expected, "{connectivity:?}: {} and {}", objects.len(), expected.len());
            }
        }
    }
}
