//! The kernels of `kernels/ncc.cu`, with the checks that make launching them safe, and what all NCC kernels
//! take.

#![expect(unsafe_code, reason = "a kernel's arguments carry no types, device addresses no lengths")]

use std::cell::OnceCell;

use lockon_core::config::NccKernel;
use lockon_core::error::Result;
use lockon_core::frame::{Rect, Size};
use lockon_core::template::TemplateSums;

use super::driver::{
    DeviceBuffer, Gpu, Kernel, Module, PinnedBuffer, Rows, Stream, Texture, arg, pitch_for, ptx,
};
use super::shared::{constant, pod_structure};
use super::texture::over_rows;
use super::{mma, wgmma};

const PTX: &str = include_str!("../ptx/ncc.ptx");

const PUBLISH_PTX: &str = include_str!("../ptx/publish.ptx");

/// Widest and highest frame and template: 32-bit sums of a row or column of squares reach so far.
pub(super) const MAX_SIDE: usize = 65_536;

const CONSTANT_BYTES: usize = constant(PTX, "CONSTANT_BYTES");
const TILE_WIDTH: usize = constant(PTX, "TILE_WIDTH");
const STRIP_ROWS: usize = constant(PTX, "STRIP_ROWS");
const SEGMENT: usize = constant(PTX, "SEGMENT");

/// Threads of a block: the literature's 8x8 for the texture kernel, a warp by eight rows for the others.
const TEXTURE_BLOCK: [usize; 3] = [8, 8, 1];
const BLOCK: [usize; 3] = [32, 8, 1];
const PUBLISH_THREADS: usize = 128;

/// `Pattern` of `kernels/ncc.cuh`: a template as the kernels take it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Pattern {
    w: i32,
    h: i32,
    n: i64,
    t1: i64,
    variance: i64,
}

pod_structure!(Pattern, 32 bytes { w: i32, h: i32, n: i64 = 8, t1: i64, variance: i64 = 24 });

impl Pattern {
    /// A template of this size with these sums.
    pub(super) fn new(size: Size, sums: TemplateSums) -> Self {
        Self {
            w: size.width as i32,
            h: size.height as i32,
            n: sums.n,
            t1: sums.t1,
            variance: sums.variance(),
        }
    }

    pub(super) fn size(&self) -> Size {
        Size::new(self.w as usize, self.h as usize)
    }

    /// As it lies in the device's memory.
    pub(super) fn to_bytes(self) -> [u8; size_of::<Self>()] {
        let mut bytes = [0; size_of::<Self>()];
        bytes[..4].copy_from_slice(&self.w.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.h.to_ne_bytes());
        for (bytes, number) in bytes[8..].chunks_exact_mut(8).zip([self.n, self.t1, self.variance]) {
            bytes.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }
}

/// `Image` of `kernels/window_sums.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Image {
    pixels: u64,
    pitch: i32,
    width: i32,
    height: i32,
    unused: i32,
}

pod_structure!(Image, 24 bytes { pixels: u64, pitch: i32 = 8, width: i32, height: i32 = 16, unused: i32 });

/// A template on the device.
pub(super) struct Member {
    /// Identifies it among all templates that these kernels are used for.
    pub(super) key: (u64, usize),
    pub(super) pattern: Pattern,
    pub(super) sums: TemplateSums,
    pub(super) size: Size,
    pub(super) is_masked: bool,
    /// Its pixels, and to their right its mask.
    pub(super) texture: Texture,
    /// Its pixels and mask again, and the statistics, for copies into constant memory.
    pub(super) rows: Rows,
    pub(super) statistics: u64,
    pub(super) how: How,
}

/// How a template is searched for, with the data that this needs on the device.
pub(super) enum How {
    /// By one of the kernels of `ncc.cu`.
    Plain(NccKernel),
    /// By those for tensor cores.
    Wgmma(wgmma::Prepared),
    /// By `wgmma` too, but into a map, whatever the template's size is.
    WgmmaMap(wgmma::map::Prepared),
    Mma(mma::Prepared),
    /// By `mma.sync` too, but into a map whatever the template's size is.
    MmaMap(mma::Prepared),
}

impl How {
    /// The kernel that sums the products.
    pub(super) fn kernel(&self) -> NccKernel {
        match self {
            Self::Plain(kernel) => *kernel,
            Self::Wgmma(_) => NccKernel::Wgmma,
            Self::WgmmaMap(_) => NccKernel::WgmmaMap,
            Self::Mma(_) => NccKernel::Mma,
            Self::MmaMap(_) => NccKernel::MmaMap,
        }
    }

    /// True if a score map is made of every search, not only of those that had too many suspects.
    pub(super) fn makes_map(&self) -> bool {
        match self {
            Self::Plain(_) | Self::WgmmaMap(_) | Self::MmaMap(_) => true,
            Self::Wgmma(_) => false,
            Self::Mma(prepared) => !prepared.is_searched_at_once(),
        }
    }
}

/// The peaks that are wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Wanted {
    /// Minimum score.
    pub(super) min_score: f64,
    /// Only the best of each member.
    pub(super) best_only: bool,
}

impl Wanted {
    /// The minimum score in f32, rounded down, so that no match is lost.
    pub(super) fn min_score_below(self) -> f32 {
        let nearest = self.min_score as f32;
        if f64::from(nearest) > self.min_score { nearest.next_down() } else { nearest }
    }
}

impl Member {
    /// Its pixels and its mask.
    pub(super) fn planes(&self) -> usize {
        if self.is_masked { 2 } else { 1 }
    }

    fn bytes(&self) -> usize {
        self.size.area() * self.planes()
    }
}

/// A frame on the device.
pub(super) struct DeviceFrame {
    pub(super) pixels: DeviceBuffer<u8>,
    pub(super) pitch: usize,
    pub(super) size: Size,
    pub(super) texture: Texture,
}

impl DeviceFrame {
    /// Room for a frame of `size`.
    pub(super) fn new(gpu: &Gpu, size: Size) -> Result<Self> {
        let pitch = pitch_for(gpu, size.width)?;
        let pixels = gpu.alloc("a frame", pitch * size.height)?;
        // SAFETY: the frame keeps `pixels` and does not let other code replace it; kernels get the texture of
        // a frame that lives (`NccKernels::correlate`).
        let texture = unsafe { over_rows(gpu, &pixels, 0, pitch, size)? };
        Ok(Self { pixels, pitch, size, texture })
    }

    /// Its pixels from (`x`, `y`) on.
    pub(super) fn rows_from(&self, x: usize, y: usize) -> Rows {
        Rows { address: self.pixels.address_of(y * self.pitch + x), pitch: self.pitch }
    }

    /// A box of it, as kernels take it.
    pub(super) fn image(&self, rect: Rect) -> Image {
        assert!(rect.is_inside(self.size), "{rect} of a {} frame", self.size);
        let Rows { address, pitch } = self.rows_from(rect.x, rect.y);
        Image { pixels: address, pitch: pitch as i32, width: rect.w as i32, height: rect.h as i32, unused: 0 }
    }
}

/// `Region` of `kernels/ncc_fast.cuh`: what is searched for a template, for kernels that sum products into a
/// map.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Region {
    frame: Image,
    left: i32,
    top: i32,
    width: i32,
    height: i32,
    w: i32,
    h: i32,
}

pod_structure!(Region, 48 bytes {
    frame: Image,
    left: i32 = 24,
    top: i32,
    width: i32,
    height: i32,
    w: i32 = 40,
    h: i32,
});

impl Region {
    /// Positions of a template of `size` in a box of a frame.
    ///
    /// # Panics
    /// If the box is not in the frame.
    pub(super) fn new(frame: &DeviceFrame, region: Rect, size: Size) -> Self {
        assert!(region.is_inside(frame.size), "{region} of a {} frame", frame.size);
        let positions = positions(region.size(), size);
        Self {
            frame: frame.image(Rect::whole(frame.size)),
            left: region.x as i32,
            top: region.y as i32,
            width: positions.width as i32,
            height: positions.height as i32,
            w: size.width as i32,
            h: size.height as i32,
        }
    }
}

/// The kernel that sums I and I I down columns.
pub(super) struct ColumnSums(Kernel);

impl ColumnSums {
    /// Loads it from a module that has it.
    pub(super) fn load(module: &Module) -> Result<Self> {
        module.kernel("column_sums").map(Self)
    }

    /// As [`Self::load`], to run beside another kernel.
    pub(super) fn load_beside(module: &Module) -> Result<Self> {
        module.kernel_beside("column_sums").map(Self)
    }

    /// Sums of I and I I down every column of `region`, for windows `h` high: `region.w` numbers a row.
    ///
    /// # Panics
    /// If such windows do not fit in the region, the region not in the frame, or the sums have no room.
    pub(super) fn sum(
        &self,
        stream: &Stream,
        frame: &DeviceFrame,
        region: Rect,
        h: usize,
        sums: &mut [DeviceBuffer<u32>; 2],
    ) -> Result<()> {
        assert!(h <= region.h, "windows {h} high in {region}");
        let rows = region.h - h + 1;
        assert!(sums.iter().all(|sums| sums.len() >= rows * region.w), "column sums of {region}");
        let grid = [region.w.div_ceil(256), rows.div_ceil(STRIP_ROWS), 1];
        let (image, h, rows) = (frame.image(region), h as i32, rows as i32);
        let (s, ss) = (sums[0].address(), sums[1].address());
        let mut args = [arg(&image), arg(&h), arg(&rows), arg(&s), arg(&ss)];
        // SAFETY: the arguments of `column_sums`. `image` lies in the frame, as `DeviceFrame::image` asserts;
        // the sums have room for `rows` rows of its width, as asserted.
        unsafe { stream.launch(&self.0, grid, [256, 1, 1], 0, &mut args) }
    }
}

/// The kernels of `ncc.cu`, each loaded when it is first needed.
pub(super) struct NccKernels {
    gpu: Gpu,
    map: OnceCell<MapKernels>,
    constant: OnceCell<ConstantKernels>,
    /// The template in constant memory.
    resident: Option<(u64, usize)>,
}

/// The kernels that all searches with a score map need, in one copy for all.
struct MapKernels {
    texture: [Kernel; 2],
    column_sums: ColumnSums,
    scores: Kernel,
    peaks: Kernel,
}

/// The kernels that read the template from constant memory, which belongs to this copy of them: one template
/// lies there at a time.
struct ConstantKernels {
    constant: [Kernel; 2],
    shared: [Kernel; 2],
    pattern: u64,
    pixels: u64,
}

/// Returns the value in a cell; makes it now if the cell is empty.
pub(super) fn once<T>(cell: &OnceCell<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    match cell.get() {
        Some(made) => Ok(made),
        None => make().map(|made| cell.get_or_init(|| made)),
    }
}

/// A kernel for templates without a mask, and the one for those with one.
fn pair(module: &Module, plain: &'static str, masked: &'static str) -> Result<[Kernel; 2]> {
    Ok([module.kernel(plain)?, module.kernel(masked)?])
}

impl NccKernels {
    /// No kernel is loaded yet.
    pub(super) fn new(gpu: &Gpu) -> Self {
        Self { gpu: gpu.clone(), map: OnceCell::new(), constant: OnceCell::new(), resident: None }
    }

    /// Forgets the resident template: a graph captured with these kernels may have replaced the constant
    /// memory.
    pub(super) fn forget(&mut self) {
        self.resident = None;
    }

    fn map(&self) -> Result<&MapKernels> {
        once(&self.map, || {
            let module = self.gpu.share(ptx!("ncc"))?;
            Ok(MapKernels {
                texture: pair(&module, "correlate_texture", "correlate_texture_masked")?,
                column_sums: ColumnSums::load(&module)?,
                scores: module.kernel("scores")?,
                peaks: module.kernel("peaks")?,
            })
        })
    }

    fn constant(&self) -> Result<&ConstantKernels> {
        once(&self.constant, || {
            let module = self.gpu.load(&ptx!("ncc").text())?;
            let (pattern, pattern_bytes) = module.global("constant_pattern")?;
            let (pixels, bytes) = module.global("constant_pixels")?;
            assert_eq!((pattern_bytes, bytes), (size_of::<Pattern>(), CONSTANT_BYTES), "as in ncc.cu");
            Ok(ConstantKernels {
                constant: pair(&module, "correlate_constant", "correlate_constant_masked")?,
                shared: pair(&module, "correlate_shared", "correlate_shared_masked")?,
                pattern,
                pixels,
            })
        })
    }

    /// Loads the code that searches with `kernel` need, so that the first search need not.
    pub(super) fn prepare(&self, kernel: NccKernel) -> Result<()> {
        match kernel {
            NccKernel::Wgmma => {}
            NccKernel::Texture | NccKernel::WgmmaMap | NccKernel::Mma | NccKernel::MmaMap => {
                self.map()?;
            }
            NccKernel::Constant | NccKernel::Shared => {
                self.map()?;
                self.constant()?;
            }
        }
        Ok(())
    }

    /// Puts a template and its statistics into constant memory, from where they lie on the device, unless
    /// they are there.
    fn load_constant(&mut self, stream: &Stream, member: &Member) -> Result<()> {
        if self.resident == Some(member.key) {
            return Ok(());
        }
        assert!(member.bytes() <= CONSTANT_BYTES, "{} bytes of template in constant memory", member.bytes());
        self.resident = None;
        let &ConstantKernels { pattern: constant_pattern, pixels: constant_pixels, .. } = self.constant()?;
        let Size { width, height } = member.size;
        for plane in 0..member.planes() {
            let from = Rows { address: member.rows.address + (plane * width) as u64, ..member.rows };
            let to = Rows { address: constant_pixels + (plane * width * height) as u64, pitch: width };
            // SAFETY: a `Member`'s rows lie in its bank's buffer, its planes side by side
            // (`PlannedSearch::new`); the variable has CONSTANT_BYTES, as `constant` asserts, and the planes
            // take no more, as asserted above.
            unsafe { stream.copy_rows(from, to, width, height)? };
        }
        let pitch = size_of::<Pattern>();
        let (from, to) = (member.statistics, constant_pattern);
        // SAFETY: a `Member`'s statistics lie in its bank's buffer too; the variable has the size of a
        // `Pattern`, as `constant` asserts.
        unsafe { stream.copy_rows(Rows { address: from, pitch }, Rows { address: to, pitch }, pitch, 1)? };
        self.resident = Some(member.key);
        Ok(())
    }

    /// The kernel that sums columns.
    pub(super) fn column_sums(&self) -> Result<&ColumnSums> {
        self.map().map(|kernels| &kernels.column_sums)
    }

    /// ST of every position of `region` into `map`; of a masked template the score. `kernel` is what
    /// [`choose`] says.
    pub(super) fn correlate(
        &mut self,
        stream: &Stream,
        kernel: NccKernel,
        frame: &DeviceFrame,
        region: Rect,
        member: &Member,
        map: &mut DeviceBuffer<i64>,
    ) -> Result<()> {
        let positions = positions(region.size(), member.size);
        assert!(region.is_inside(frame.size) && map.len() >= positions.area(), "{region} in {}", frame.size);
        if matches!(kernel, NccKernel::Constant | NccKernel::Shared) {
            self.load_constant(stream, member)?;
        }
        let which = usize::from(member.is_masked);
        let (image, left, top) = (frame.texture.handle(), region.x as i32, region.y as i32);
        let (width, height, map) = (positions.width as i32, positions.height as i32, map.address());
        let (pixels, pattern) = (member.texture.handle(), member.pattern);
        let mut all = [
            arg(&image),
            arg(&left),
            arg(&top),
            arg(&pixels),
            arg(&pattern),
            arg(&width),
            arg(&height),
            arg(&map),
        ];
        let mut without_template = [arg(&image), arg(&left), arg(&top), arg(&width), arg(&height), arg(&map)];
        let grid =
            |block: [usize; 3]| [positions.width.div_ceil(block[0]), positions.height.div_ceil(block[1]), 1];
        // SAFETY: the arguments of `correlate_*`, in `all` or `without_template`. The map has room for all
        // positions, as asserted. All reads go through textures, which clamp coordinates to the frame and to
        // the template; both live. `load_constant` has put this template where the last two read it, and
        // `tile_bytes` counts the rows of the tile.
        unsafe {
            match kernel {
                NccKernel::Texture => stream.launch(
                    &self.map()?.texture[which],
                    grid(TEXTURE_BLOCK),
                    TEXTURE_BLOCK,
                    0,
                    &mut all,
                ),
                NccKernel::Constant => stream.launch(
                    &self.constant()?.constant[which],
                    grid(BLOCK),
                    BLOCK,
                    0,
                    &mut without_template,
                ),
                NccKernel::Wgmma | NccKernel::WgmmaMap | NccKernel::Mma | NccKernel::MmaMap => {
                    unreachable!("what was prepared launches it")
                }
                NccKernel::Shared => {
                    let bytes = tile_bytes(member.size);
                    stream.launch(
                        &self.constant()?.shared[which],
                        grid(BLOCK),
                        BLOCK,
                        bytes,
                        &mut without_template,
                    )
                }
            }
        }
    }

    /// Turns ST in `map` into scores. `sums` are those of [`ColumnSums::sum`] for the same region and
    /// template.
    pub(super) fn scores(
        &self,
        stream: &Stream,
        region: Size,
        member: &Member,
        sums: &[DeviceBuffer<u32>; 2],
        map: &mut DeviceBuffer<i64>,
    ) -> Result<()> {
        let positions = positions(region, member.size);
        assert!(map.len() >= positions.area(), "map of {positions}");
        assert!(sums.iter().all(|sums| sums.len() >= positions.height * region.width), "sums of {region}");
        let grid = [positions.width.div_ceil(SEGMENT), positions.height.div_ceil(BLOCK[1]), 1];
        let (s, ss, columns, pattern) =
            (sums[0].address(), sums[1].address(), region.width as i32, member.pattern);
        let (width, height, map) = (positions.width as i32, positions.height as i32, map.address());
        let mut args =
            [arg(&s), arg(&ss), arg(&columns), arg(&pattern), arg(&width), arg(&height), arg(&map)];
        // SAFETY: the arguments of `scores`, which reads `positions.height` rows of `region.width` sums and
        // reads and writes the map at all positions: they have room, as asserted.
        unsafe { stream.launch(&self.map()?.scores, grid, BLOCK, 0, &mut args) }
    }

    /// Appends the peaks of `map` to `found`.
    pub(super) fn peaks(
        &self,
        stream: &Stream,
        positions: Size,
        map: &DeviceBuffer<i64>,
        min_score: f64,
        tag: u32,
        found: &mut Found,
    ) -> Result<()> {
        assert!(map.len() >= positions.area(), "map of {positions}");
        let grid = [positions.width.div_ceil(BLOCK[0]), positions.height.div_ceil(BLOCK[1]), 1];
        let (width, height, map) = (positions.width as i32, positions.height as i32, map.address());
        let (candidates, capacity) = (found.words.address_of(Found::HEADER), found.capacity() as u32);
        let count = found.words.address();
        let mut args = [
            arg(&map),
            arg(&width),
            arg(&height),
            arg(&min_score),
            arg(&tag),
            arg(&candidates),
            arg(&capacity),
            arg(&count),
        ];
        // SAFETY: the arguments of `peaks`, which reads the map at all positions, for which it has room, as
        // asserted; the list has room for `capacity` candidates behind its header (`Found::new`).
        unsafe { stream.launch(&self.map()?.peaks, grid, BLOCK, 0, &mut args) }
    }
}

/// Returns the kernel of `ncc.cu` that correlates with `member`: the requested one if the template is small
/// enough for it, else the one that takes any; if none was requested, the fastest that fits.
pub(super) fn choose(asked: Option<NccKernel>, member: &Member, max_shared_bytes: usize) -> NccKernel {
    let fits_constant = member.bytes() <= CONSTANT_BYTES;
    let fits_shared = fits_constant && tile_bytes(member.size) <= max_shared_bytes;
    match asked.filter(|kernel| !kernel.is_for_tensor_cores()) {
        None | Some(NccKernel::Shared) if fits_shared => NccKernel::Shared,
        None | Some(NccKernel::Constant) if fits_constant => NccKernel::Constant,
        _ => NccKernel::Texture,
    }
}

/// Where a template of this size can lie in a region: nowhere, along a side in which it does not fit.
pub(super) fn positions(region: Size, template: Size) -> Size {
    template.positions_in(region)
}

/// Shared memory that `correlate_shared` needs.
fn tile_bytes(template: Size) -> usize {
    tile_pitch(template.width) * (BLOCK[1] + template.height)
}

/// `tile_pitch` of `kernels/ncc.cu`: bytes from row to row of a tile, for templates so wide.
const fn tile_pitch(width: usize) -> usize {
    (TILE_WIDTH + width).next_multiple_of(64)
}
const _: () = assert!(tile_pitch(1) == 64 && tile_pitch(32) == 64 && tile_pitch(33) == 128);

/// The list of candidates on the device: a header, then candidates. It is empty at first, and after
/// [`Publish::run`].
pub(super) struct Found {
    pub(super) words: DeviceBuffer<u64>,
}

/// The kernel of `publish.cu`.
pub(super) struct Publish {
    kernel: Kernel,
}

impl Publish {
    /// Loads it.
    pub(super) fn load(gpu: &Gpu) -> Result<Self> {
        Ok(Self { kernel: gpu.share(ptx!("publish"))?.kernel("publish")? })
    }

    /// Copies the header of `found` and the candidates that `host` has room for, and empties the list,
    /// without waiting.
    ///
    /// # Safety
    /// Until the kernel is done (known from a wait for `stream` or for a later event in it):
    /// - `host` is not dropped,
    /// - it is neither read nor written by the host.
    pub(super) unsafe fn run(
        &self,
        stream: &Stream,
        found: &mut Found,
        host: &mut PinnedBuffer<u64>,
    ) -> Result<()> {
        let room = ((host.len() - Found::HEADER) / Found::CANDIDATE).min(found.capacity()) as i32;
        let (from, to) = (found.words.address(), host.device_address());
        let mut args = [arg(&from), arg(&to), arg(&room)];
        // SAFETY: the arguments of `publish` in publish.cu. Both buffers have room for the header and `room`
        // candidates: the smaller of the two capacities. The caller keeps `host`.
        unsafe { stream.launch(&self.kernel, [1; 3], [PUBLISH_THREADS, 1, 1], 0, &mut args) }
    }
}

/// A candidate as `peaks` writes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FoundPeak {
    pub(super) tag: u32,
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) score: f64,
    /// Scores to the left, right, above and below; meaningless where the map ends.
    pub(super) beside: [f64; 4],
}

impl Found {
    /// Words of the header: the number of candidates, and the number of foreground pixels.
    pub(super) const HEADER: usize = constant(PUBLISH_PTX, "HEADER");
    /// The word of the header that counts foreground pixels.
    pub(super) const FOREGROUND: usize = 1;
    /// Words of a candidate.
    pub(super) const CANDIDATE: usize = constant(PUBLISH_PTX, "CANDIDATE");

    /// Room for `capacity` candidates.
    pub(super) fn new(gpu: &Gpu, capacity: usize) -> Result<Self> {
        Ok(Self { words: gpu.alloc("candidates", Self::words(capacity))? })
    }

    /// Words that so many candidates and the header take.
    pub(super) fn words(candidates: usize) -> usize {
        Self::HEADER + candidates * Self::CANDIDATE
    }

    /// How many candidates there is room for.
    pub(super) fn capacity(&self) -> usize {
        (self.words.len() - Self::HEADER) / Self::CANDIDATE
    }

    /// A candidate from its words.
    pub(super) fn decode(words: &[u64; Self::CANDIDATE]) -> FoundPeak {
        let halves = |word: u64| [word as u32, (word >> 32) as u32];
        let ([tag, x], [y, _]) = (halves(words[0]), halves(words[1]));
        let [score, left, right, above, below] = [2, 3, 4, 5, 6].map(|i| f64::from_bits(words[i]));
        FoundPeak { tag, x, y, score, beside: [left, right, above, below] }
    }
}
