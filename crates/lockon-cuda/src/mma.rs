//! The NCC kernels of `kernels/ncc_mma.cu`: templates of any size on the tensor cores of every device that
//! has them.
//!
//! A small template without a mask is matched in one launch that writes no score map: it leaves suspects,
//! `settle` computes their exact scores and appends the peaks to the list of candidates. If there are more
//! suspects than room, that is counted in the list's header, and the search is done again with a map. Of all
//! other templates the products are summed into a map, which the kernels of `kernels/ncc.cu` turn into scores
//! and peaks.

#![expect(unsafe_code, reason = "a kernel's arguments carry no types, device addresses no lengths")]

use std::sync::Arc;

use lockon_core::error::Result;
use lockon_core::frame::{Rect, Size};

use super::driver::{DeviceBuffer, Gpu, Kernel, Stream, arg, ptx};
use super::ncc::{DeviceFrame, Found, Member, Region, Wanted, positions};
use super::shared::{constant, pod_structure};
use super::suspects::{Packer, Query, Settler, Sought, Suspicion, Words};

/// For compute capability 7.5 and later.
pub(super) const PTX: &str = include_str!("../ptx/ncc_mma.ptx");

/// For 8.0 and later.
const PTX_80: &str = include_str!("../ptx/ncc_mma_80.ptx");

/// Returns a constant that must be equal in both.
const fn both(name: &str) -> usize {
    assert!(constant(PTX, name) == constant(PTX_80, name), "the two generations differ");
    constant(PTX, name)
}

const TILE_X: usize = both("TILE_X");
const MMA_WARPS: usize = both("MMA_WARPS");
const MMA_THREADS: usize = both("MMA_THREADS");
const MATCH_THREADS: usize = both("MATCH_THREADS");
/// Bytes of `PrefixSums`; the kernels assert it.
const PREFIX_BYTES: usize = 16 * both("PREFIX_HALF");
const PIECE_CHUNKS: usize = both("PIECE_CHUNKS");
const PIECE_ROWS: usize = both("PIECE_ROWS");
const MOST_PIECES: usize = both("MOST_PIECES");
/// Rows of positions of a block of `ncc_mma_products`, which asserts this number.
const PRODUCTS_TILE: usize = 64;

/// Shared memory of a multiprocessor that the driver reserves for each block.
const RESERVED_SHARED: usize = 1_024;

/// Largest template that is matched in one launch: a warp's prefix sums reach over 256 columns, sums of its
/// products stay below 2^31.
const MAX_WIDTH: usize = 128;
const MAX_AREA: usize = 32_768;

/// Maximum pixels of a masked template that count: its four sums share 64 bits and two words of 32.
const MAX_COUNTED: i64 = 1 << 20;

/// For which devices the kernels were compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Generation {
    /// Compute capability 7.5: products of 8 by 8 by 16.
    Turing,
    /// Compute capability 8.0 and later: products of 16 by 8 by 32, and copies that pass the registers by.
    Ampere,
}

/// The kernels, loaded; all streams may use them at once.
pub(super) struct MmaKernels {
    gpu: Gpu,
    /// The kernels for tiles of 64 and of 32 rows.
    matches: [Kernel; 2],
    products: Kernel,
    scores: Kernel,
    spread: Kernel,
    packer: Packer,
    settler: Settler,
    multiprocessors: usize,
    shared_bytes: usize,
}

/// The data of a template that the kernels need, made on the device when a search is planned.
pub(super) struct Prepared {
    kernels: Arc<MmaKernels>,
    /// Rows four times, and those of the mask.
    spread: DeviceBuffer<u32>,
    mask: Option<DeviceBuffer<u32>>,
    /// If it is matched in one launch.
    words: Option<Words>,
}

/// How a template is matched in one launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Geometry {
    /// Rows of positions of a block's tile.
    tile: usize,
    grid: [usize; 2],
    /// Rows of the template that lie in shared memory at a time.
    piece_rows: usize,
    shared_bytes: usize,
}

/// Steps of 16 columns that a template takes.
fn chunks(template: Size) -> usize {
    (template.width + 30) / 16
}

/// `copy_pitch` of the kernels: words from a copy of a row of the template to the next.
const fn copy_pitch(chunks: usize) -> usize {
    (4 * chunks + 11) / 16 * 16 + 8
}
const _: () =
    assert!(copy_pitch(1) == 8 && copy_pitch(2) == 24 && copy_pitch(5) == 24 && copy_pitch(9) == 40);

/// Words that a template's rows take, each four times.
fn spread_words(template: Size) -> usize {
    4 * copy_pitch(chunks(template)) * template.height.next_multiple_of(4)
}

/// The launch with tiles of so many rows, or `None` if it does not fit in `shared_bytes`.
fn geometry(tile: usize, template: Size, left: usize, map: Size, shared_bytes: usize) -> Option<Geometry> {
    let rows = template.height.next_multiple_of(4);
    let pixels = (TILE_X - 16 + 16 * chunks(template)) * (tile + rows);
    let sums = 4 * TILE_X * tile + 2 * MMA_WARPS * PREFIX_BYTES;
    let room = shared_bytes.checked_sub(pixels).filter(|&room| room >= sums)?;
    let row_bytes = 16 * copy_pitch(chunks(template));
    // The row before a piece lies there too. Pieces are of like size.
    let most = (room / row_bytes).saturating_sub(1).min(rows) / 4 * 4;
    if most == 0 {
        return None;
    }
    let piece_rows = rows.div_ceil(rows.div_ceil(most)).next_multiple_of(4);
    Some(Geometry {
        tile,
        grid: [(left % 16 + map.width).div_ceil(TILE_X), map.height.div_ceil(tile)],
        piece_rows,
        shared_bytes: pixels + sums.max(row_bytes * (piece_rows + 1)),
    })
}

/// The launch that is taken, if there is one: lower tiles where the higher leave multiprocessors without
/// work, or do not fit twice into one.
fn best_geometry(
    template: Size,
    left: usize,
    map: Size,
    shared_bytes: usize,
    multiprocessors: usize,
) -> Option<Geometry> {
    if template.width > MAX_WIDTH || template.area() > MAX_AREA {
        return None;
    }
    let half = usize::midpoint(shared_bytes, RESERVED_SHARED) - RESERVED_SHARED;
    let of = |tile, shared_bytes| geometry(tile, template, left, map, shared_bytes);
    let fills_less = |launch: &Geometry| launch.grid[0] * launch.grid[1] <= multiprocessors;
    of(32, half)
        .filter(fills_less)
        .or_else(|| of(64, half))
        .or_else(|| of(32, half))
        .or_else(|| of(64, shared_bytes))
        .or_else(|| of(32, shared_bytes))
}

/// How the products of a template are summed into a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProductsGeometry {
    grid: [usize; 2],
    /// Blocks that share the work of a tile.
    shares: usize,
    shared_bytes: usize,
}

/// `sums` is the number of sums computed at once: 1, or 4 of a masked template.
fn products_geometry(
    template: Size,
    left: usize,
    map: Size,
    sums: usize,
    multiprocessors: usize,
) -> ProductsGeometry {
    let across = PIECE_CHUNKS.min(chunks(template));
    let pieces = chunks(template).div_ceil(PIECE_CHUNKS) * template.height.div_ceil(PIECE_ROWS);
    let grid = [(left % 16 + map.width).div_ceil(TILE_X), map.height.div_ceil(PRODUCTS_TILE)];
    // Four blocks have room on a multiprocessor of the larger ones.
    let wanted = (4 * multiprocessors).div_ceil(grid[0] * grid[1] * sums);
    ProductsGeometry {
        grid,
        shares: pieces.div_ceil(MOST_PIECES).max(wanted.min(pieces)),
        shared_bytes: (TILE_X - 16 + 16 * across) * (PRODUCTS_TILE + PIECE_ROWS)
            + 16 * copy_pitch(across) * (PIECE_ROWS + 1),
    }
}

/// `Search` of `kernels/ncc_mma.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct MmaSearch {
    sought: Sought,
    mean: u32,
    factor: f32,
    min_score: f32,
    all_peaks: i32,
}

pod_structure!(MmaSearch, 112 bytes {
    sought: Sought,
    mean: u32 = 96,
    factor: f32,
    min_score: f32 = 104,
    all_peaks: i32,
});

impl MmaSearch {
    fn new(sought: Sought, member: &Member, wanted: Wanted) -> Self {
        let n = member.sums.n as f64;
        Self {
            sought,
            mean: fixed_mean(member.sums.t1, member.sums.n),
            factor: (member.sums.variance() as f64 / (n * n)) as f32,
            min_score: wanted.min_score_below(),
            all_peaks: i32::from(!wanted.best_only),
        }
    }
}

impl MmaKernels {
    /// Loads those for this device.
    pub(super) fn load(gpu: &Gpu) -> Result<Arc<Self>> {
        let generation =
            if gpu.info().capability.major >= 8 { Generation::Ampere } else { Generation::Turing };
        Self::load_for(gpu, generation, gpu.multiprocessors()?)
    }

    /// Loads those that were compiled for a generation, which is this device's or an earlier one, to be
    /// launched as on a device of so many multiprocessors.
    pub(super) fn load_for(gpu: &Gpu, generation: Generation, multiprocessors: usize) -> Result<Arc<Self>> {
        let module = gpu.share(match generation {
            Generation::Turing => ptx!("ncc_mma"),
            Generation::Ampere => ptx!("ncc_mma_80"),
        })?;
        Ok(Arc::new(Self {
            gpu: gpu.clone(),
            matches: [module.kernel("ncc_mma_64")?, module.kernel("ncc_mma_32")?],
            products: module.kernel("ncc_mma_products")?,
            scores: module.kernel("ncc_mma_scores")?,
            spread: module.kernel("spread_template")?,
            packer: Packer::new(gpu, &module)?,
            settler: Settler::new(&module, multiprocessors)?,
            multiprocessors,
            shared_bytes: gpu.max_shared_bytes()?,
        }))
    }

    /// Prepares a template, or `None` if it is not for these kernels. If it is small and has no mask, it is
    /// [searched at once](Prepared::is_searched_at_once).
    pub(super) fn prepare(self: &Arc<Self>, stream: &Stream, member: &Member) -> Result<Option<Prepared>> {
        let Some(prepared) = self.prepare_for_map(stream, member)? else { return Ok(None) };
        let fits =
            |map| best_geometry(member.size, 0, map, self.shared_bytes, self.multiprocessors).is_some();
        let is_searched_at_once = !member.is_masked && fits(Size::new(1, 1));
        let words = if is_searched_at_once { Some(self.packer.pack(stream, member)?) } else { None };
        Ok(Some(Prepared { words, ..prepared }))
    }

    /// Prepares a template whose products go into a map, whatever its size is; `None` if it has a mask in
    /// which too many pixels count.
    pub(super) fn prepare_for_map(
        self: &Arc<Self>,
        stream: &Stream,
        member: &Member,
    ) -> Result<Option<Prepared>> {
        if member.is_masked && member.sums.n > MAX_COUNTED {
            return Ok(None);
        }
        let lay_out = |plane| self.lay_out(stream, member, plane);
        let mask = if member.is_masked { Some(lay_out(1)?) } else { None };
        Ok(Some(Prepared { kernels: self.clone(), spread: lay_out(0)?, mask, words: None }))
    }

    /// Lays out the rows of a template's pixels (plane 0) or of its mask (plane 1).
    fn lay_out(&self, stream: &Stream, member: &Member, plane: usize) -> Result<DeviceBuffer<u32>> {
        let size = member.size;
        let to = self.gpu.alloc("rows of a template", spread_words(size))?;
        let (pixels, pitch) = (member.rows.address + (plane * size.width) as u64, member.rows.pitch as i32);
        let (w, h, address) = (size.width as i32, size.height as i32, to.address());
        let mut args = [arg(&pixels), arg(&pitch), arg(&w), arg(&h), arg(&address)];
        // SAFETY: the arguments of `spread_template`. A `Member`'s rows lie in its bank's buffer, its planes
        // side by side (`PlannedSearch::new`); the kernel writes `spread_words` words, as were allocated.
        unsafe { stream.launch(&self.spread, [to.len().div_ceil(256), 1, 1], [256, 1, 1], 0, &mut args)? };
        Ok(to)
    }
}

impl Prepared {
    /// True if [`Self::search`] is for it, which leaves no map.
    pub(super) fn is_searched_at_once(&self) -> bool {
        self.words.is_some()
    }

    /// Appends the wanted peaks in a window of the frame to `found`: both kernels, without waiting.
    ///
    /// # Panics
    /// If it is not [searched at once](Self::is_searched_at_once), or the window lies outside the frame.
    pub(super) fn search(
        &self,
        stream: &Stream,
        frame: &DeviceFrame,
        query: Query<'_>,
        wanted: Wanted,
        suspicion: &mut Suspicion,
        found: &mut Found,
    ) -> Result<()> {
        let Query { member, window, tag } = query;
        let kernels = &self.kernels;
        let words = self.words.as_ref().expect("it is searched at once");
        let map = positions(window.size(), member.size);
        let launch = best_geometry(member.size, window.x, map, kernels.shared_bytes, kernels.multiprocessors)
            .expect("asked when it was prepared");
        let sought = Sought::new(frame, query, suspicion);
        let search = MmaSearch::new(sought, member, wanted);
        let (spread, piece_rows) = (self.spread.address(), launch.piece_rows as i32);
        let mut args = [arg(&search), arg(&spread), arg(&piece_rows)];
        let kernel = &kernels.matches[usize::from(launch.tile == 32)];
        let grid = [launch.grid[0], launch.grid[1], 1];
        // SAFETY: the arguments of `ncc_mma_64` and `ncc_mma_32`. The window lies in the frame, as
        // `Sought::new` asserts, whose rows begin at multiples of 32 bytes (`pitch_for`); `lay_out` made the
        // rows of this template; the list of suspects has the room that `Suspicion::suspects` states; shared
        // memory is what `geometry` counts for the tile, the template's pieces and the sums.
        unsafe { stream.launch(kernel, grid, [MATCH_THREADS, 1, 1], launch.shared_bytes, &mut args)? };
        kernels.settler.settle(stream, &sought, words, tag, wanted, found)
    }

    /// ST of every position of `region` into `map`; of a masked template the score, for which `sums` is
    /// needed.
    pub(super) fn correlate(
        &self,
        stream: &Stream,
        frame: &DeviceFrame,
        region: Rect,
        member: &Member,
        sums: &mut [DeviceBuffer<u32>; 2],
        map: &mut DeviceBuffer<i64>,
    ) -> Result<()> {
        let (size, kernels) = (member.size, &self.kernels);
        let positions = positions(region.size(), size);
        let area = positions.area();
        assert!(region.is_inside(frame.size) && map.len() >= area, "{region} in {}", frame.size);
        assert!(sums.iter().all(|sums| sums.len() >= area), "sums of {region}");
        // Blocks add to the existing values.
        stream.clear(map, area)?;
        if self.mask.is_some() {
            for sums in sums.iter_mut() {
                stream.clear(sums, area)?;
            }
        }
        let number_of_sums = if self.mask.is_some() { 4 } else { 1 };
        let launch = products_geometry(size, region.x, positions, number_of_sums, kernels.multiprocessors);
        let place = Region::new(frame, region, size);
        let (pixels, mask) = (self.spread.address(), self.mask.as_ref().map_or(0, DeviceBuffer::address));
        let (shares, map) = (launch.shares as i32, map.address());
        let (s, high) = (sums[0].address(), sums[1].address());
        let mut args = [arg(&place), arg(&pixels), arg(&mask), arg(&shares), arg(&map), arg(&s), arg(&high)];
        let grid = [launch.grid[0], launch.grid[1], launch.shares * number_of_sums];
        // SAFETY: the arguments of `ncc_mma_products`. The region lies in the frame, as asserted, whose rows
        // begin at multiples of 32 bytes (`pitch_for`); `lay_out` made the rows of this template and its
        // mask; map and sums have room for all positions, as asserted; shared memory is what
        // `products_geometry` counts.
        unsafe {
            stream.launch(&kernels.products, grid, [MMA_THREADS, 1, 1], launch.shared_bytes, &mut args)?;
        }
        if self.mask.is_none() {
            return Ok(());
        }
        let (pattern, area) = (member.pattern, area as u32);
        let mut args = [arg(&s), arg(&high), arg(&pattern), arg(&area), arg(&map)];
        // SAFETY: the arguments of `ncc_mma_scores`, which reads both sums and reads and writes the map at
        // `area` positions, for which they have room, as asserted.
        unsafe {
            let grid = [positions.area().div_ceil(256), 1, 1];
            stream.launch(&kernels.scores, grid, [256, 1, 1], 0, &mut args)
        }
    }
}

/// t1 / n in units of 2^-24, to the nearest.
fn fixed_mean(t1: i64, n: i64) -> u32 {
    u32::try_from(((t1 << 25) / n + 1) / 2).expect("the mean of pixels is at most 255")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW_BYTES_SHIFT: usize = both("LOW_BYTES_SHIFT");

    /// Shared memory of a block on 7.5, on 8.6, 8.9 and 12.0, on 8.0, and on 9.0 and 10.0.
    const SHARED: [usize; 4] = [65_536, 101_376, 166_912, 232_448];

    #[test]
    fn sums_have_the_bits_that_they_need() {
        // The last piece of an odd row of positions has a row more.
        const { assert!(255 * 255 * (MOST_PIECES * 16 * PIECE_CHUNKS * (PIECE_ROWS + 1)) < 1 << 32) };
        const { assert!(255 * 255 * MAX_AREA < 1 << 31 && 255 * MAX_AREA < 1 << 23) };
        let counted = MAX_COUNTED as u128;
        assert!(255 * 255 * counted < 1 << LOW_BYTES_SHIFT);
        assert!((255 * counted) << LOW_BYTES_SHIFT < 1 << 64);
        assert_eq!(fixed_mean(255 * 7, 7), 255 << 24);
        assert_eq!(fixed_mean(1, 3), 5_592_405);
    }

    #[test]
    fn every_tile_covers_its_positions_and_fits() {
        for shared in SHARED {
            for (w, h) in [(1, 2), (2, 1), (16, 16), (17, 3), (33, 64), (60, 44), (64, 64), (128, 128)] {
                for (width, height) in [(1, 1), (129, 130), (1857, 1017), (4000, 2000)] {
                    let (template, map) = (Size::new(w, h), Size::new(width, height));
                    for left in [0, 5, 15] {
                        let launch = best_geometry(template, left, map, shared, 40);
                        let Some(launch) = launch else {
                            assert!(w * h > 16_000 && shared < 70_000, "{template} in {shared}");
                            continue;
                        };
                        assert!(launch.grid[0] * TILE_X >= left + width, "{launch:?}");
                        assert!(launch.grid[1] * launch.tile >= height, "{launch:?}");
                        assert!(launch.shared_bytes <= shared, "{launch:?}");
                        assert!(launch.piece_rows.is_multiple_of(4) && launch.piece_rows > 0, "{launch:?}");
                    }
                }
            }
        }
        for (w, h) in [(129, 2), (129, 200), (128, 257), (300, 300)] {
            assert_eq!(best_geometry(Size::new(w, h), 0, Size::new(500, 500), SHARED[3], 132), None);
        }
    }

    #[test]
    fn every_piece_of_a_template_has_a_block() {
        for (w, h) in [(1, 2), (129, 2), (300, 300), (1000, 700), (1920, 1080), (4096, 1024)] {
            for sums in [1, 4] {
                let launch = products_geometry(Size::new(w, h), 3, Size::new(77, 65), sums, 132);
                let pieces = chunks(Size::new(w, h)).div_ceil(PIECE_CHUNKS) * h.div_ceil(PIECE_ROWS);
                assert!((1..=pieces).contains(&launch.shares), "{launch:?}");
                assert!(pieces.div_ceil(launch.shares) <= MOST_PIECES, "{launch:?}");
                assert!(launch.shared_bytes <= 48 << 10 && launch.grid == [1, 2], "{launch:?}");
                // As many as the third dimension of a grid can have.
                assert!(launch.shares * sums <= 65_535);
            }
        }
    }
}
