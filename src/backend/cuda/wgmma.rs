//! The NCC kernels of `kernels/ncc_wgmma.cu`: one template, without a mask, on the tensor cores of compute capability 9.0.
//!
//! They write no score map. A search leaves suspects, `settle` computes their exact scores and appends the peaks to the list
//! of candidates. If there are more suspects than room, it counts that in the list's header, and the search is done again by
//! another kernel.

#![expect(unsafe_code, reason = "a kernel's arguments carry no types, device addresses no lengths")]

use std::sync::Arc;

use crate::error::Result;
use crate::frame::{Rect, Size};

use super::driver::{DeviceBuffer, Gpu, Kernel, Pod, Stream, arg};
use super::ncc::{DeviceFrame, Found, Image, Member, Pattern, positions};

// As in kernels/ncc_wgmma.cu and kernels/ncc_fast.cuh.

const TILE_X: usize = 128;
const PART_STEPS: usize = 8;
const PART_BYTES: usize = (2 * PART_STEPS + 3) * 256;
const MAX_STAGES: usize = 16;
const SUM_WARPS: usize = 11;
const SUM_SCRATCH: usize = 2304;
const SETTLE_THREADS: usize = 256;

/// Of what a block can have, what the kernels' own variables take.
const RESERVED_SHARED: usize = 1024;

/// Largest template: sums of its products stay below 2^31.
const MAX_WIDTH: usize = 128;
const MAX_HEIGHT: usize = 256;
const MAX_AREA: usize = 32_768;

/// Suspects that a lane has room for.
const SUSPECTS: usize = 65_536;

/// One of the kernels that match.
struct Variant {
    name: &'static str,
    /// Most rows of positions of a block's tile.
    tile: usize,
    threads: usize,
    /// Most steps of 16 columns that a template may take; the tile then lies three times in shared memory.
    chunks: Option<usize>,
}

const VARIANTS: [Variant; 4] = [
    Variant { name: "ncc_wgmma_3x96_2", tile: 144, threads: 768, chunks: Some(2) },
    Variant { name: "ncc_wgmma_3x96_3", tile: 144, threads: 768, chunks: Some(3) },
    Variant { name: "ncc_wgmma_2x128", tile: 128, threads: 640, chunks: None },
    Variant { name: "ncc_wgmma_3x96", tile: 144, threads: 768, chunks: None },
];

/// The kernels, loaded; all streams may use them at once.
pub(super) struct WgmmaKernels {
    gpu: Gpu,
    variants: [Kernel; 4],
    spread: Kernel,
    pack: Kernel,
    settle: Kernel,
    multiprocessors: usize,
    shared_bytes: usize,
}

/// What the kernels want of a template, made on the device when a search is planned.
pub(super) struct Prepared {
    kernels: Arc<WgmmaKernels>,
    /// The bands of A.
    spread: DeviceBuffer<u8>,
    /// Rows in words of four pixels.
    words: DeviceBuffer<u32>,
}

/// A lane's room for suspects.
pub(super) struct Suspicion {
    state: DeviceBuffer<u32>,
    suspects: DeviceBuffer<u32>,
}

impl Suspicion {
    /// All zeros, as the first search wants it.
    pub(super) fn new(gpu: &Gpu) -> Result<Self> {
        Ok(Self { state: gpu.alloc("suspicion", 4)?, suspects: gpu.alloc("suspects", 4 * SUSPECTS)? })
    }
}

/// How a search is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Geometry {
    /// Index in `VARIANTS`.
    variant: usize,
    grid: [usize; 2],
    stages: usize,
    tile_rows: usize,
    shared_bytes: usize,
}

/// Steps of 16 columns, and of two rows, that a template takes.
fn chunks_and_steps(template: Size) -> (usize, usize) {
    ((template.width + 30) / 16, template.height / 2 + 2)
}

/// The launch of one variant for a template at `map` positions whose first column is `left`, or `None` if it does not fit
/// in `shared_bytes`.
fn geometry(variant: usize, template: Size, left: usize, map: Size, shared_bytes: usize) -> Option<Geometry> {
    let Variant { tile, chunks: most_chunks, .. } = VARIANTS[variant];
    let (chunks, steps) = chunks_and_steps(template);
    if most_chunks.is_some_and(|most| chunks > most) {
        return None;
    }
    let down = map.height.div_ceil(tile);
    let tile_rows = map.height.div_ceil(down).next_multiple_of(8);
    let pitch = 112 + 16 * chunks;
    let (planes, scratch) = if most_chunks.is_some() { (3, 0) } else { (1, SUM_WARPS * SUM_SCRATCH) };
    let pixels = (planes * pitch * (tile_rows + template.height - 1)).next_multiple_of(128);
    // The tensor cores read past the tile, at most so far.
    let fixed = (tile_rows * TILE_X * 8 + scratch + pixels).max(pitch * (tile + 2 * steps));
    let parts = chunks * steps.div_ceil(PART_STEPS);
    let stages = parts.min(MAX_STAGES).min(shared_bytes.checked_sub(fixed)? / PART_BYTES);
    (stages >= parts.min(2)).then(|| Geometry {
        variant,
        grid: [(left % 16 + map.width).div_ceil(TILE_X), down],
        stages,
        tile_rows,
        shared_bytes: fixed + stages * PART_BYTES,
    })
}

/// The launch that is taken: the variants for narrow templates where they fit, else the one of fewer waves of blocks.
fn best_geometry(
    template: Size,
    left: usize,
    map: Size,
    shared_bytes: usize,
    multiprocessors: usize,
) -> Option<Geometry> {
    let of = |variant| geometry(variant, template, left, map, shared_bytes);
    let waves = |launch: &Geometry| (launch.grid[0] * launch.grid[1]).div_ceil(multiprocessors);
    of(0).or_else(|| of(1)).or_else(|| [of(2), of(3)].into_iter().flatten().min_by_key(waves))
}

/// `Prepared` of `kernels/ncc_fast.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Numbers {
    n: f64,
    mean: f64,
    factor: f32,
    unused: u32,
}

/// `Search` of `kernels/ncc_fast.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Search {
    frame: Image,
    left: i32,
    top: i32,
    width: i32,
    height: i32,
    pattern: Pattern,
    numbers: Numbers,
    min_score: f32,
    all_peaks: i32,
    capacity: i32,
    unused: i32,
    suspicion: u64,
    suspects: u64,
}

// SAFETY: numbers that fill it, in the order and with the gaps of the C structure.
unsafe impl Pod for Search {}

/// Which peaks are wanted, and where.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Wanted {
    /// Where.
    pub(super) window: Rect,
    /// Least score.
    pub(super) min_score: f64,
    /// Only the best of them.
    pub(super) best_only: bool,
    /// Tag of the candidates.
    pub(super) tag: u32,
}

impl WgmmaKernels {
    /// Loads them, or `None` if the device is not of the one generation that has these instructions.
    pub(super) fn load(gpu: &Gpu) -> Result<Option<Arc<Self>>> {
        let capability = gpu.info().capability;
        if (capability.major, capability.minor) != (9, 0) {
            return Ok(None);
        }
        let module = gpu.load(include_str!("../../../kernels/ptx/ncc_wgmma.ptx"))?;
        let [a, b, c, d] = &VARIANTS;
        Ok(Some(Arc::new(Self {
            gpu: gpu.clone(),
            variants: [
                module.kernel(a.name)?,
                module.kernel(b.name)?,
                module.kernel(c.name)?,
                module.kernel(d.name)?,
            ],
            spread: module.kernel("spread_template")?,
            pack: module.kernel("pack_template")?,
            settle: module.kernel("settle")?,
            multiprocessors: gpu.multiprocessors()?,
            shared_bytes: gpu.max_shared_bytes()? - RESERVED_SHARED,
        })))
    }

    /// Prepares a template for searches in regions of this size, or `None` if it is not for these kernels.
    pub(super) fn prepare(
        self: &Arc<Self>,
        stream: &Stream,
        member: &Member,
        region: Size,
    ) -> Result<Option<Prepared>> {
        let size = member.size;
        let is_small = size.width <= MAX_WIDTH
            && size.height <= MAX_HEIGHT
            && size.area() <= MAX_AREA
            && !member.is_masked;
        // Wherever a window lies, it fits if it does at the worst place.
        let fits = || (0..16).all(|left| self.geometry(size, left, positions(region, size)).is_some());
        if !is_small || !fits() {
            return Ok(None);
        }
        let (chunks, steps) = chunks_and_steps(size);
        let spread = self.gpu.alloc("bands of a template", chunks * (2 * steps + 3) * 256)?;
        let words = self.gpu.alloc("words of a template", size.width.div_ceil(4) * size.height)?;
        let (pixels, pitch) = (member.rows.address, member.rows.pitch as i32);
        let (w, h) = (size.width as i32, size.height as i32);
        for (kernel, threads, to) in
            [(&self.spread, spread.len(), spread.address()), (&self.pack, words.len(), words.address())]
        {
            let mut args = [arg(&pixels), arg(&pitch), arg(&w), arg(&h), arg(&to)];
            // SAFETY: both kernels take these; a `Member`'s rows lie in its bank's buffer; each writes as many elements as
            // were allocated.
            unsafe { stream.launch(kernel, [threads.div_ceil(256), 1, 1], [256, 1, 1], 0, &mut args)? };
        }
        Ok(Some(Prepared { kernels: self.clone(), spread, words }))
    }

    fn geometry(&self, template: Size, left: usize, map: Size) -> Option<Geometry> {
        best_geometry(template, left, map, self.shared_bytes, self.multiprocessors)
    }
}

impl Prepared {
    /// Appends the wanted peaks in a window of the frame to `found`: both kernels, without waiting.
    pub(super) fn search(
        &self,
        stream: &Stream,
        frame: &DeviceFrame,
        member: &Member,
        wanted: Wanted,
        suspicion: &mut Suspicion,
        found: &mut Found,
    ) -> Result<()> {
        let window = wanted.window;
        assert!(window.is_inside(frame.size), "{window} of a {} frame", frame.size);
        let (size, kernels) = (member.size, &self.kernels);
        let map = positions(window.size(), size);
        let launch = kernels.geometry(size, window.x, map).expect("asked when it was prepared");
        let sums = member.sums;
        let n = sums.n as f64;
        // Rounded down, so that none is lost.
        let nearest = wanted.min_score as f32;
        let min_score = if f64::from(nearest) > wanted.min_score { nearest.next_down() } else { nearest };
        let search = Search {
            frame: frame.image(Rect::whole(frame.size)),
            left: window.x as i32,
            top: window.y as i32,
            width: map.width as i32,
            height: map.height as i32,
            pattern: member.pattern,
            numbers: Numbers {
                n,
                mean: sums.t1 as f64 / n,
                factor: (sums.variance() as f64 / (n * n)) as f32,
                unused: 0,
            },
            min_score,
            all_peaks: i32::from(!wanted.best_only),
            capacity: SUSPECTS as i32,
            unused: 0,
            suspicion: suspicion.state.address(),
            suspects: suspicion.suspects.address(),
        };
        let (spread, stages, tile_rows) =
            (self.spread.address(), launch.stages as i32, launch.tile_rows as i32);
        let mut args = [arg(&search), arg(&spread), arg(&stages), arg(&tile_rows)];
        let Variant { threads, .. } = VARIANTS[launch.variant];
        let grid = [launch.grid[0], launch.grid[1], 1];
        // SAFETY: the window lies in the frame, whose rows begin at multiples of 32 bytes (`DeviceFrame::new`); the bands
        // were made for this template; the list of suspects has the room that is stated; shared memory is what the tile,
        // its sums and the ring take.
        unsafe {
            stream.launch(
                &kernels.variants[launch.variant],
                grid,
                [threads, 1, 1],
                launch.shared_bytes,
                &mut args,
            )?;
        }
        let (words, min_score, tag) = (self.words.address(), wanted.min_score, wanted.tag);
        let (candidates, capacity) = (found.words.address_of(Found::HEADER), found.capacity() as u32);
        let counts = found.words.address();
        let mut args = [
            arg(&search),
            arg(&words),
            arg(&min_score),
            arg(&tag),
            arg(&candidates),
            arg(&capacity),
            arg(&counts),
        ];
        let columns = size.width.div_ceil(4);
        let shared = (columns * size.height + (columns + 2) * (size.height + 2)) * 4;
        let blocks = if wanted.best_only { 16 } else { 2 * kernels.multiprocessors };
        // SAFETY: as above; the list of candidates has room for `capacity` behind its header, whose first word holds the
        // two counts.
        unsafe { stream.launch(&kernels.settle, [blocks, 1, 1], [SETTLE_THREADS, 1, 1], shared, &mut args) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a block of an H100 or H200 can have.
    const SHARED: usize = 232_448 - RESERVED_SHARED;

    #[test]
    fn structures_lie_as_the_kernels_have_them() {
        assert_eq!((size_of::<Search>(), size_of::<Numbers>(), size_of::<Image>()), (128, 24, 24));
        assert_eq!(std::mem::offset_of!(Search, pattern), 40);
        assert_eq!(std::mem::offset_of!(Search, numbers), 72);
        assert_eq!(std::mem::offset_of!(Search, min_score), 96);
        assert_eq!(std::mem::offset_of!(Search, suspicion), 112);
    }

    #[test]
    fn constants_are_those_of_the_kernels() {
        let source =
            [include_str!("../../../kernels/ncc_wgmma.cu"), include_str!("../../../kernels/ncc_fast.cuh")]
                .concat();
        for line in [
            format!("constexpr int TILE_X = {TILE_X};"),
            format!("#define PART_STEPS {PART_STEPS}"),
            "constexpr int PART_BYTES = (2 * PART_STEPS + 3) * 256;".into(),
            format!("constexpr int MAX_STAGES = {MAX_STAGES};"),
            format!("constexpr int SETTLE_THREADS = {SETTLE_THREADS};"),
        ] {
            assert!(source.contains(&line), "{line}");
        }
        for Variant { name, .. } in VARIANTS {
            let short = name.trim_start_matches("ncc_wgmma_");
            assert!(source.contains(&format!("MATCH({short}, ")), "{name}");
        }
    }

    #[test]
    fn every_tile_covers_its_positions_and_fits() {
        for (w, h) in [(1, 2), (2, 1), (16, 16), (17, 3), (33, 64), (60, 44), (64, 64), (128, 128)] {
            for (width, height) in [(1, 1), (129, 130), (1857, 1017), (4000, 2000)] {
                let (template, map) = (Size::new(w, h), Size::new(width, height));
                for left in [0, 5, 15] {
                    let launch = best_geometry(template, left, map, SHARED, 132).expect("it fits");
                    assert!(launch.grid[0] * TILE_X >= left + width, "{launch:?}");
                    assert!(launch.grid[1] * launch.tile_rows >= height, "{launch:?}");
                    assert!(
                        launch.tile_rows <= VARIANTS[launch.variant].tile && launch.shared_bytes <= SHARED
                    );
                }
            }
        }
        assert_eq!(best_geometry(Size::new(128, 256), 0, Size::new(500, 500), SHARED, 132), None);
    }

    #[test]
    fn narrow_templates_take_the_variants_that_are_for_them() {
        let variant = |w, h| {
            let map = Size::new(1920 - w + 1, 1080 - h + 1);
            VARIANTS[best_geometry(Size::new(w, h), 0, map, SHARED, 132).unwrap().variant].name
        };
        assert_eq!([variant(16, 16), variant(32, 32)], ["ncc_wgmma_3x96_2", "ncc_wgmma_3x96_3"]);
        assert_eq!(variant(128, 128), "ncc_wgmma_2x128");
    }
}
