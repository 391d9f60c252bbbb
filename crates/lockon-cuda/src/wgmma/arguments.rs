//! Arguments of the kernels: structures of `kernels/ncc_wgmma.cuh`.

use lockon_core::frame::{Rect, Size};

use super::geometry::{Geometry, MAX_SEARCHES};
use super::{Prepared, Progress};
use crate::ncc::{DeviceFrame, Found, Image, Member, Pattern, Wanted, positions};
use crate::shared::pod_structure;
use crate::suspects::Words;

/// `Member` of `kernels/ncc_wgmma.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Record {
    pattern: Pattern,
    spread: u64,
    words: u64,
    mean: u32,
    scale: f32,
    rough_mean: f32,
    root_scale: f32,
}

pod_structure!(Record, 64 bytes {
    pattern: Pattern,
    spread: u64 = 32,
    words: u64,
    mean: u32 = 48,
    scale: f32,
    rough_mean: f32,
    root_scale: f32 = 60,
});

impl Record {
    pub(super) fn new(member: &Member, prepared: &Prepared) -> Self {
        let sums = member.sums;
        let n = sums.n as f64;
        let mean = sums.t1 as f64 / n;
        let scale = sums.variance() as f64 / (n * n) * f64::from(1 << shift(sums.n));
        Self {
            pattern: member.pattern,
            spread: prepared.spread.address(),
            words: prepared.words.as_ref().map_or(0, Words::address),
            mean: (mean * f64::from(1 << 24)).round() as u32,
            scale: scale as f32,
            rough_mean: mean as f32,
            root_scale: scale.sqrt() as f32,
        }
    }
}

/// Bits by which the kernels cut off a window's n SS - S S, so that 32 remain.
pub(super) fn shift(n: i64) -> u32 {
    (2 * (64 - (n - 1).leading_zeros())).saturating_sub(18)
}

/// `Search` of `kernels/ncc_wgmma.cuh`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct WgmmaSearch {
    members: u64,
    left: i32,
    top: i32,
    width: i32,
    height: i32,
    first_block: i32,
    end_block: i32,
    tag: u32,
    first_progress: u16,
    members_count: u16,
    w: u16,
    h: u16,
    tile_rows: u16,
    across: u16,
}

pod_structure!(WgmmaSearch, 48 bytes {
    members: u64,
    left: i32 = 8,
    top: i32,
    width: i32,
    height: i32,
    first_block: i32,
    end_block: i32,
    tag: u32 = 32,
    first_progress: u16 = 36,
    members_count: u16,
    w: u16,
    h: u16,
    tile_rows: u16,
    across: u16 = 46,
});

/// `Launch` of `kernels/ncc_wgmma.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct WgmmaLaunch {
    search: [WgmmaSearch; MAX_SEARCHES],
    frame: Image,
    pub(super) searches: u16,
    pub(super) shares_best: u16,
    pub(super) shared_bytes: i32,
    progress: u64,
    candidates: u64,
    count: u64,
    min_score_exact: f64,
    capacity: u32,
    min_score: f32,
}

pod_structure!(WgmmaLaunch, 3144 bytes {
    search: [WgmmaSearch; MAX_SEARCHES],
    frame: Image = 3072,
    searches: u16 = 3096,
    shares_best: u16,
    shared_bytes: i32 = 3100,
    progress: u64 = 3104,
    candidates: u64,
    count: u64,
    min_score_exact: f64 = 3128,
    capacity: u32,
    min_score: f32 = 3140,
});

// Before PTX 8.1, a kernel's arguments took 4352 bytes at most; on the safe side of it.
const _: () = assert!(size_of::<WgmmaLaunch>() <= 4096);

impl WgmmaLaunch {
    /// A launch without searches.
    pub(super) fn new(
        frame: &DeviceFrame,
        wanted: Wanted,
        progress: &mut Progress,
        found: &mut Found,
    ) -> Self {
        Self {
            search: [WgmmaSearch::default(); MAX_SEARCHES],
            frame: frame.image(Rect::whole(frame.size)),
            searches: 0,
            shares_best: 0,
            shared_bytes: 0,
            progress: progress.0.address(),
            candidates: found.words.address_of(Found::HEADER),
            count: found.words.address(),
            min_score_exact: wanted.min_score,
            capacity: found.capacity() as u32,
            min_score: wanted.min_score_below(),
        }
    }

    /// The blocks so far.
    pub(super) fn blocks(&self) -> usize {
        self.searches.checked_sub(1).map_or(0, |last| self.search[usize::from(last)].end_block as usize)
    }

    /// Adds a search of `members` members, from that record on, launched like this; their numbers are `tag`
    /// and those that follow.
    pub(super) fn add(
        &mut self,
        geometry: &Geometry,
        window: Rect,
        template: Size,
        records: u64,
        (tag, first_progress, members): (usize, usize, usize),
    ) {
        let (map, first_block) = (positions(window.size(), template), self.blocks());
        self.search[usize::from(self.searches)] = WgmmaSearch {
            members: records,
            left: window.x as i32,
            top: window.y as i32,
            width: map.width as i32,
            height: map.height as i32,
            first_block: first_block as i32,
            end_block: (first_block + geometry.blocks()) as i32,
            tag: tag as u32,
            first_progress: first_progress as u16,
            members_count: members as u16,
            w: template.width as u16,
            h: template.height as u16,
            tile_rows: geometry.tile_rows as u16,
            across: geometry.grid[0] as u16,
        };
        self.searches += 1;
        self.shared_bytes = self.shared_bytes.max(geometry.shared_bytes as i32);
    }
}
