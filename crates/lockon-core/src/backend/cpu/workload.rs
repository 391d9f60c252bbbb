//! The work of a search, counted from sizes before there is a bank, and from pixels.

use super::correlate::{Correlator, error_of};
use super::ncc::LEAST_PEAKS;
use super::plan::{Plan, Workload};
use super::search::{middle_of, squares_about, worker_bytes};
use super::simd::Level;
use super::sums::{MAX_WINDOW, WindowVariances};
use crate::backend::Variants;
use crate::frame::{PlaneRef, Rect, Size};
use crate::template::Bank;

pub(super) fn of_bank(bank: &Bank, region: Size, threads: usize) -> Workload {
    let members = bank.members().iter().map(|member| (member.size(), member.mask().is_some()));
    of_sizes(members, region, threads)
}

/// The work of members of these sizes, each masked or not.
fn of_sizes(members: impl Iterator<Item = (Size, bool)>, region: Size, threads: usize) -> Workload {
    let (mut largest, mut count, mut masked) = (Size::new(1, 1), 0, 0);
    for (size, is_masked) in members {
        largest = Size::new(largest.width.max(size.width), largest.height.max(size.height));
        (count, masked) = (count + 1, masked + usize::from(is_masked));
    }
    Workload {
        region,
        largest,
        planes: if masked > 0 { 2 } else { 1 },
        members: count,
        correlations: count + 2 * masked,
        threads,
    }
}

/// About how long an exhaustive search for all variants that fit takes, in seconds of the machine that the
/// plan's constants were measured on. The same on every machine; 0 if nothing fits.
pub(in crate::backend) fn exhaustive_seconds(variants: &Variants, region: Size, threads: usize) -> f64 {
    let work = of_sizes(fitting(variants, region), region, threads);
    if work.members == 0 { 0.0 } else { Plan::new(&work).cost_ns(&work) / 1e9 }
}

/// Positions on each side of the blocks in which [`unclear_share`] looks at a picture.
const BLOCK: usize = 256;

/// True if an exhaustive search has masks with gaps in a row. Where such a mask leaves a window nearly flat,
/// estimates say nothing; under other masks the variance is known.
pub(in crate::backend) fn has_gaps(variants: &Variants) -> bool {
    variants.templates.iter().any(|template| template.mask().is_some() && template.spans().is_none())
}

/// The share of the windows of a size whose variance under a mask with gaps is too small for the bounds of
/// estimates: nearly flat ones, but not those that are quite flat. Tiles with many of them are scored exactly
/// at every position, which takes longer.
///
/// It depends on the pixels alone: not on tiles, threads or the processor.
pub(in crate::backend) fn unclear_share(region: PlaneRef<'_>, window: Size) -> f64 {
    let positions = window.positions_in(region.size());
    if positions.area() == 0 || window.area() > MAX_WINDOW {
        return 0.0;
    }
    let mut sliding = WindowVariances::new(BLOCK + window.width - 1, Level::best());
    let mut row = vec![0.0_f32; BLOCK];
    let n = window.area() as f64;
    let mut unclear = 0;
    for top in (0..positions.height).step_by(BLOCK) {
        for left in (0..positions.width).step_by(BLOCK) {
            let (across, down) = (BLOCK.min(positions.width - left), BLOCK.min(positions.height - top));
            let block = Rect::new(left, top, across + window.width - 1, down + window.height - 1);
            let pixels = region.crop(block);
            let (_, norm) = squares_about(middle_of(pixels), pixels);
            // As in `SearchWorker::estimate`, for a window whose mean is about the tile's.
            let bound = n * error_of::<f32>(pixels.size(), norm, n.sqrt());
            let variances = &mut row[..across];
            for y in 0..down {
                sliding.go_to(y, pixels, window, variances);
                unclear += variances.iter().filter(|&&v| v > 0.0 && f64::from(v) <= bound).count();
            }
        }
    }
    unclear as f64 / positions.area() as f64
}

/// Bytes with which an exhaustive search for all variants that fit is not refused: their pixels and masks,
/// one thread's work and the transforms of one member at a time. It may go with a little less.
pub(super) fn exhaustive_bytes(variants: &Variants, region: Size, threads: usize) -> usize {
    let work = of_sizes(fitting(variants, region), region, threads);
    if work.members == 0 {
        return 0;
    }
    let bank: usize = fitting(variants, region)
        .map(|(size, is_masked)| size.area() * if is_masked { 2 } else { 1 })
        .fold(0, usize::saturating_add);
    let tile = Plan::new(&work).tile;
    let worker = worker_bytes(tile, tile.area(), work.planes > 1);
    bank.saturating_add(worker + work.planes * Correlator::<f32>::spectrum_bytes(tile) + LEAST_PEAKS)
}

/// Size of each variant that fits in a region, and whether it is masked.
fn fitting(variants: &Variants, region: Size) -> impl Iterator<Item = (Size, bool)> {
    let sizes = (0..variants.count()).map(|variant| (variant, variants.size(variant)));
    sizes.filter(move |(_, size)| size.fits_in(region)).map(|(variant, size)| {
        let (_, _, angle) = variants.parts(variant);
        // Turned by other angles than quarters, a template has corners that do not count.
        (size, variants.template(variant).mask().is_some() || angle.rem_euclid(90.0) != 0.0)
    })
}
