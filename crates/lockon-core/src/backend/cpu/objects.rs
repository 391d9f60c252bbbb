//! Objects of a mask: runs of its packed bits, joined by union-find, with sums that grow as runs are read.
//!
//! Bands of rows are read in parallel, each in one pass that looks at two rows at a time. A run of pixels
//! that touches no run above begins a component; one that touches several joins theirs. Everything that is
//! reported is a sum over runs or over pairs of runs that touch, so a run is forgotten after the row below
//! it, and what was joined is added up once at the end of the band. Then the rows on both sides of each
//! border between bands are joined in the same way. All sums are integers: neither bands nor threads change a
//! number.
//!
//! A component takes 100 bytes while it is read, and its object 112; with 4 neighbours a corner at which two
//! runs touch takes 8, and where holes are filled a run of the background 12. Components of a W x H mask are
//! at most ceil(W/2) * ceil(H/2) with 8 neighbours, and ceil(W H / 2) with 4. What would take more memory
//! than is allowed is refused while it is read.
//!
//! Union by runs after L. He, Y. Chao, K. Suzuki, "A Run-Based Two-Scan Labeling Algorithm", 2008. Runs give
//! the Euler number too: two runs meet in one piece and three never, so it is the number of runs less the
//! number of pairs of runs that meet.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::bits::Bits;
use super::simd::Level;
use crate::backend::objects::{Sums, select};
use crate::config::{Connectivity, ObjectSpec};
use crate::error::{Bytes, Error, Result};
use crate::frame::{Plane, PlaneRef, Size};
use crate::memory;
use crate::message::{Message, Setting};
use crate::results::Object;

/// Finds the objects of masks of one size.
pub struct ObjectFinder {
    spec: ObjectSpec,
    size: Size,
    level: Level,
    memory: Bytes,
    bits: Bits,
    background: Bits,
    /// For each column, and the one behind the last, the sum of the squares of those before it.
    squares: Vec<u64>,
    objects: Labelling<Sums>,
    outside: Labelling<Outside>,
}

impl ObjectFinder {
    /// Finds objects in masks of `size`, with at most so much memory for components, by default half of the
    /// free memory.
    ///
    /// # Errors
    /// As [`Sums::check`].
    pub fn new(spec: &ObjectSpec, size: Size, memory: Option<Bytes>) -> Result<Self> {
        Self::at(Level::best(), spec, size, memory)
    }

    /// As [`Self::new`], with the instructions of a level.
    ///
    /// # Errors
    /// As [`Sums::check`].
    pub fn at(level: Level, spec: &ObjectSpec, size: Size, memory: Option<Bytes>) -> Result<Self> {
        Sums::check(size)?;
        Ok(Self {
            spec: *spec,
            size,
            level,
            memory: memory.unwrap_or_else(memory::default_limit),
            bits: Bits::new(level, size),
            background: Bits::new(level, size),
            squares: squares_before(size.width),
            objects: Labelling::default(),
            outside: Labelling::default(),
        })
    }

    /// Takes the objects of `mask`, whose pixels of 128 or more are white, and cleans them.
    ///
    /// Uses the threads of the rayon pool that it is called in; their number does not change the result.
    ///
    /// # Errors
    /// `MemoryLimit` if there are too many holes for the memory.
    ///
    /// # Panics
    /// If the mask has another size than this was made for.
    pub fn clean(&mut self, mask: PlaneRef<'_>) -> Result<()> {
        assert_eq!(mask.size(), self.size, "a mask of another size");
        if self.size.area() == 0 {
            return Ok(());
        }
        self.bits.take(mask, self.spec.colour);
        self.bits.clean(self.spec.cleaning);
        if self.spec.cleaning.fill_holes { self.fill_holes() } else { Ok(()) }
    }

    /// Writes the objects of the mask that was cleaned last, measured in `luma`: those that the filters let
    /// through, the largest if a maximum number is set. Returns how many are beyond the maximum.
    ///
    /// Uses the threads of the rayon pool that it is called in; their number does not change the result.
    ///
    /// # Errors
    /// `MemoryLimit` if there are too many components for the memory.
    ///
    /// # Panics
    /// If the luma has another size than this was made for.
    pub fn find(&mut self, luma: PlaneRef<'_>, objects: &mut Vec<Object>) -> Result<u64> {
        assert_eq!(luma.size(), self.size, "luma of another size");
        objects.clear();
        if self.size.area() == 0 {
            return Ok(0);
        }
        let work = Work {
            level: self.level,
            size: self.size,
            connectivity: self.spec.connectivity,
            bits: &self.bits,
            is_kept: false,
            memory: self.memory,
        };
        self.objects.label(&work, Scene { luma, squares: &self.squares })?;
        let components = self.objects.components();
        Ok(select(components, |at| self.objects.tally(at), &self.spec, self.size, objects))
    }

    /// Writes the mask that was cleaned last, in the colours that it had before.
    pub fn cleaned(&self, mask: &mut Plane) {
        self.bits.give(mask, self.spec.colour);
    }

    /// Adds the parts of the background that do not reach the border of the picture.
    fn fill_holes(&mut self) -> Result<()> {
        self.background.invert(&self.bits);
        let size = self.size;
        let work = Work {
            level: self.level,
            size,
            // A line of objects separates the background on both of its sides.
            connectivity: match self.spec.connectivity {
                Connectivity::Four => Connectivity::Eight,
                Connectivity::Eight => Connectivity::Four,
            },
            bits: &self.background,
            is_kept: true,
            memory: self.memory,
        };
        self.outside.label(&work, size)?;
        let outside = &self.outside;
        self.bits.bands_mut(outside.rows).enumerate().for_each(|(index, words)| {
            let per_row = words.len() / outside.bands[index].ends.len();
            let band = &outside.bands[index];
            let mut begin = 0;
            for (row, &end) in words.chunks_mut(per_row).zip(&band.ends) {
                for run in &band.runs[begin..end] {
                    if !outside.tally(outside.component_of(index, run)).0 {
                        fill(row, run.start as usize, run.end as usize);
                    }
                }
                begin = end;
            }
        });
        Ok(())
    }
}

/// For each column, and the one behind the last, the sum of the squares of those before it.
fn squares_before(width: usize) -> Vec<u64> {
    let columns = (0..=width as u64).scan(0, |sum, column| {
        let before = *sum;
        // Unused behind the last.
        *sum += if column < width as u64 { column * column } else { 0 };
        Some(before)
    });
    columns.collect()
}

/// Sets the bits from `start` to before `end`.
fn fill(row: &mut [u64], start: usize, end: usize) {
    for (at, word) in row.iter_mut().enumerate().take(end.div_ceil(64)).skip(start / 64) {
        let from = start.saturating_sub(64 * at);
        let to = (end - 64 * at).min(64);
        *word |= (u64::MAX >> (64 - (to - from))) << from;
    }
}

/// Pixels beside each other in a row, from `start` to before `end`.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    start: u32,
    end: u32,
    /// A component of the band that it belongs to: one of those that are joined.
    label: u32,
}

/// Pairs of pixels of two runs in rows above each other.
#[derive(Debug, Clone, Copy, Default)]
struct Pairs {
    /// Pairs that share an edge.
    edges: u32,
    /// Pairs that share a corner.
    corners: u32,
    /// Pairs of runs.
    runs: i32,
}

impl Pairs {
    #[inline(always)]
    fn add(&mut self, other: Self) {
        self.edges += other.edges;
        self.corners += other.corners;
        self.runs += other.runs;
    }
}

/// The sums of a component, or other facts about it.
trait Tally: Copy + Send + Sync {
    /// True if pairs of pixels are counted.
    const COUNTS_PAIRS: bool;
    /// Bytes that a component takes, what is made of it at the end included.
    const BYTES: usize;
    /// The picture in which runs are measured.
    type Picture<'a>: Copy + Send + Sync;
    /// A row of that.
    type Row<'a>: Copy;
    /// Runs of a row that belong to it, from left to right: they are added to it together.
    type Part: Copy;
    /// Row `y` of the picture.
    fn row<'a>(picture: &Self::Picture<'a>, y: usize) -> Self::Row<'a>;
    /// A run, and its pairs with runs above it.
    fn part(run: &Run, pairs: Pairs, row: &Self::Row<'_>) -> Self::Part;
    /// Adds a run further right.
    fn extend(part: &mut Self::Part, run: &Run, pairs: Pairs, row: &Self::Row<'_>);
    /// A component without pixels, before its first run in row `y`.
    fn before(y: usize) -> Self;
    /// Adds runs in row `y`, which is not above those before.
    fn add_part(&mut self, part: &Self::Part, y: usize);
    /// Adds pairs of pixels.
    fn add_pairs(&mut self, pairs: Pairs);
    /// Adds another part.
    fn join(&mut self, other: &Self);
    /// True if it reaches the first or last row of `rows`.
    fn reaches(&self, rows: &Range<usize>) -> bool;
}

/// Where objects are measured.
#[derive(Clone, Copy)]
struct Scene<'a> {
    luma: PlaneRef<'a>,
    /// For each column, and the one behind the last, the sum of the squares of those before it.
    squares: &'a [u64],
}

/// A row of a scene.
#[derive(Clone, Copy)]
struct SceneRow<'a> {
    luma: &'a [u8],
    squares: &'a [u64],
}

/// Sums over runs of one row.
#[derive(Clone, Copy)]
struct RowSums {
    x: u64,
    xx: u64,
    luma: u64,
    area: u32,
    runs: u32,
    pairs: Pairs,
    left: u32,
    right: u32,
    min_luma: u8,
    max_luma: u8,
}

impl Tally for Sums {
    const COUNTS_PAIRS: bool = true;
    const BYTES: usize = size_of::<Self>() + size_of::<Object>();
    type Picture<'a> = Scene<'a>;
    type Row<'a> = SceneRow<'a>;
    type Part = RowSums;

    #[inline(always)]
    fn row<'a>(picture: &Self::Picture<'a>, y: usize) -> Self::Row<'a> {
        SceneRow { luma: picture.luma.row(y), squares: picture.squares }
    }

    #[inline(always)]
    fn part(run: &Run, pairs: Pairs, row: &SceneRow<'_>) -> RowSums {
        let (start, end) = (run.start as usize, run.end as usize);
        let (n, both) = (run.end - run.start, u64::from(run.start) + u64::from(run.end) - 1);
        let luma = luma_of(&row.luma[start..end]);
        RowSums {
            x: both * u64::from(n) / 2,
            xx: row.squares[end] - row.squares[start],
            luma: luma.sum,
            area: n,
            runs: 1,
            pairs,
            left: run.start,
            right: run.end - 1,
            min_luma: luma.min,
            max_luma: luma.max,
        }
    }

    #[inline(always)]
    fn extend(part: &mut RowSums, run: &Run, pairs: Pairs, row: &SceneRow<'_>) {
        let other = Self::part(run, pairs, row);
        part.x += other.x;
        part.xx += other.xx;
        part.luma += other.luma;
        part.area += other.area;
        part.runs += 1;
        part.pairs.add(pairs);
        part.right = other.right;
        part.min_luma = part.min_luma.min(other.min_luma);
        part.max_luma = part.max_luma.max(other.max_luma);
    }

    #[inline(always)]
    fn before(y: usize) -> Self {
        Self {
            x: 0,
            y: 0,
            xx: 0,
            xy: 0,
            yy: 0,
            luma: 0,
            area: 0,
            edges: 0,
            corners: 0,
            euler: 0,
            left: u32::MAX,
            right: 0,
            top: y as u32,
            bottom: y as u32,
            min_luma: u8::MAX,
            max_luma: u8::MIN,
        }
    }

    #[inline(always)]
    fn add_part(&mut self, part: &RowSums, y: usize) {
        let (n, row) = (u64::from(part.area), y as u64);
        self.x += part.x;
        self.y += row * n;
        self.xx += part.xx;
        self.xy += row * part.x;
        self.yy += row * row * n;
        self.luma += part.luma;
        self.area += part.area;
        // In a run each pixel but the first shares an edge with the one before it.
        self.edges += part.area - part.runs + part.pairs.edges;
        self.corners += part.pairs.corners;
        self.euler += part.runs as i32 - part.pairs.runs;
        self.left = self.left.min(part.left);
        self.right = self.right.max(part.right);
        self.bottom = y as u32;
        self.min_luma = self.min_luma.min(part.min_luma);
        self.max_luma = self.max_luma.max(part.max_luma);
    }

    #[inline(always)]
    fn add_pairs(&mut self, pairs: Pairs) {
        self.edges += pairs.edges;
        self.corners += pairs.corners;
        self.euler -= pairs.runs;
    }

    #[inline(always)]
    fn join(&mut self, other: &Self) {
        self.add(other);
    }

    fn reaches(&self, rows: &Range<usize>) -> bool {
        self.top as usize == rows.start || self.bottom as usize + 1 == rows.end
    }
}

/// Luma of some pixels.
struct Luma {
    sum: u64,
    min: u8,
    max: u8,
}

#[inline(always)]
fn luma_of(pixels: &[u8]) -> Luma {
    let mut luma = Luma { sum: 0, min: u8::MAX, max: u8::MIN };
    if let [one] = *pixels {
        return Luma { sum: u64::from(one), min: one, max: one };
    }
    // A 32-bit sum of so many bytes fits.
    for part in pixels.chunks(1 << 16) {
        let mut sum = 0_u32;
        for &value in part {
            sum += u32::from(value);
            luma.min = luma.min.min(value);
            luma.max = luma.max.max(value);
        }
        luma.sum += u64::from(sum);
    }
    luma
}

/// True for a part of the background that reaches the border of the picture.
#[derive(Debug, Clone, Copy)]
struct Outside(bool);

impl Tally for Outside {
    const COUNTS_PAIRS: bool = false;
    const BYTES: usize = size_of::<Self>();
    type Picture<'a> = Size;
    /// The width, and true for the first and last row.
    type Row<'a> = (usize, bool);
    type Part = bool;

    #[inline(always)]
    fn row<'a>(picture: &Self::Picture<'a>, y: usize) -> Self::Row<'a> {
        (picture.width, y == 0 || y + 1 == picture.height)
    }

    #[inline(always)]
    fn part(run: &Run, _: Pairs, &(width, is_end): &(usize, bool)) -> bool {
        is_end || run.start == 0 || run.end as usize == width
    }

    #[inline(always)]
    fn extend(part: &mut bool, run: &Run, pairs: Pairs, row: &(usize, bool)) {
        *part |= Self::part(run, pairs, row);
    }

    #[inline(always)]
    fn before(_: usize) -> Self {
        Self(false)
    }

    #[inline(always)]
    fn add_part(&mut self, part: &bool, _: usize) {
        self.0 |= part;
    }

    #[inline(always)]
    fn add_pairs(&mut self, _: Pairs) {}

    #[inline(always)]
    fn join(&mut self, other: &Self) {
        self.0 |= other.0;
    }

    fn reaches(&self, _: &Range<usize>) -> bool {
        false
    }
}

/// The mask whose components are found, and how.
struct Work<'a> {
    level: Level,
    size: Size,
    connectivity: Connectivity,
    bits: &'a Bits,
    /// All runs are kept, with their components.
    is_kept: bool,
    memory: Bytes,
}

/// Components of a mask, by bands of rows.
struct Labelling<T> {
    /// Rows in a band.
    rows: usize,
    bands: Vec<Band<T>>,
    /// Where the components of each band begin among all.
    begins: Vec<u32>,
    /// For each component of a band, the first of those that it is joined with, or itself.
    joined: Vec<u32>,
}

impl<T> Default for Labelling<T> {
    fn default() -> Self {
        Self { rows: 0, bands: Vec::new(), begins: Vec::new(), joined: Vec::new() }
    }
}

/// Components of a band of rows.
struct Band<T> {
    /// For each label the label that it is joined with, or itself; then the component.
    labels: Vec<u32>,
    tallies: Vec<T>,
    /// Pairs of labels whose pixels share a corner, which joins only 8-connected ones. Both may belong to one
    /// component all the same.
    corners: Vec<[u32; 2]>,
    /// Where runs begin and end in a row.
    edges: Vec<u32>,
    /// Pairs of the runs of a row with those above.
    pairs: Vec<Pairs>,
    /// The runs of the first row, of the last one that was read, and of the one above that.
    first: Vec<Run>,
    row: Vec<Run>,
    above: Vec<Run>,
    /// All runs, where they are kept, and where each row ends among them.
    runs: Vec<Run>,
    ends: Vec<usize>,
    is_full: bool,
}

impl<T> Default for Band<T> {
    fn default() -> Self {
        Self {
            labels: Vec::new(),
            tallies: Vec::new(),
            corners: Vec::new(),
            edges: Vec::new(),
            pairs: Vec::new(),
            first: Vec::new(),
            row: Vec::new(),
            above: Vec::new(),
            runs: Vec::new(),
            ends: Vec::new(),
            is_full: false,
        }
    }
}

impl<T: Tally> Labelling<T> {
    /// Finds the components of a mask.
    fn label(&mut self, work: &Work<'_>, picture: T::Picture<'_>) -> Result<()> {
        let size = work.size;
        self.rows = size.height.div_ceil(rayon::current_num_threads());
        let count = size.height.div_ceil(self.rows);
        self.bands.resize_with(count, Band::default);
        let used = AtomicUsize::new(0);
        let rows = self.rows;
        let rows_of = |index: usize| index * rows..((index + 1) * rows).min(size.height);
        self.bands.par_iter_mut().enumerate().for_each(|(index, band)| {
            work.level.run(
                #[inline(always)]
                || match work.connectivity {
                    Connectivity::Four => band.read::<false>(work, rows_of(index), &used, picture),
                    Connectivity::Eight => band.read::<true>(work, rows_of(index), &used, picture),
                },
            );
        });
        if self.bands.iter().any(|band| band.is_full) {
            return Err(Error::MemoryLimit {
                what: format!("the objects of a mask of {size}"),
                // When it was given up: all of it would take more.
                wanted: Bytes(used.into_inner() as u64),
                limit: work.memory,
                remedy: Message::new(
                    "use {}, or another threshold that gives fewer objects",
                    [Setting::named("open")],
                ),
            });
        }
        self.join(work.connectivity);
        Ok(())
    }

    /// Joins the components of bands.
    fn join(&mut self, connectivity: Connectivity) {
        self.begins.clear();
        let mut count = 0;
        for band in &self.bands {
            self.begins.push(count);
            count += band.tallies.len() as u32;
        }
        self.joined.clear();
        self.joined.extend(0..count);
        let (mut corners, mut added) = (Vec::new(), Vec::new());
        for (index, pair) in self.bands.windows(2).enumerate() {
            let [upper, lower] = [&pair[0], &pair[1]];
            let of = |band: &Band<T>, begin: u32, run: &Run| begin + band.labels[run.label as usize];
            let mut from = 0;
            for run in &lower.first {
                let below = of(lower, self.begins[index + 1], run);
                let mut sum = Pairs::default();
                meet(&upper.row, run, &mut from, |above, pairs| {
                    let above = of(upper, self.begins[index], above);
                    if pairs.edges > 0 || connectivity == Connectivity::Eight {
                        sum.add(pairs);
                        unite(&mut self.joined, above, below);
                    } else if T::COUNTS_PAIRS {
                        corners.push([above, below]);
                    }
                });
                added.push((below, sum));
            }
            let begin = self.begins[index];
            corners.extend(upper.corners.iter().map(|pair| pair.map(|part| begin + part)));
        }
        if let (Some(last), Some(&begin)) = (self.bands.last(), self.begins.last()) {
            corners.extend(last.corners.iter().map(|pair| pair.map(|part| begin + part)));
        }
        for [one, other] in corners {
            if root(&mut self.joined, one) == root(&mut self.joined, other) {
                added.push((one, Pairs { corners: 1, ..Pairs::default() }));
            }
        }
        for (at, pairs) in added {
            self.tally_mut(at).add_pairs(pairs);
        }
        for at in 0..count {
            let first = self.joined[at as usize];
            if first != at {
                // The first of all comes before this one, so it is at the end of its way already.
                let first = self.joined[first as usize];
                self.joined[at as usize] = first;
                let own = *self.tally(at);
                self.tally_mut(first).join(&own);
            }
        }
    }

    /// The components, in the order of their first pixels.
    fn components(&self) -> Vec<u32> {
        let joined = self.joined.iter().enumerate();
        joined.filter(|(at, first)| *at == **first as usize).map(|(_, &first)| first).collect()
    }

    /// The component of a run of a band whose runs are kept.
    fn component_of(&self, band: usize, run: &Run) -> u32 {
        self.joined[(self.begins[band] + self.bands[band].labels[run.label as usize]) as usize]
    }

    /// The band of a component, and its place there.
    fn place(&self, at: u32) -> (usize, usize) {
        let band = self.begins.partition_point(|begin| *begin <= at) - 1;
        (band, (at - self.begins[band]) as usize)
    }

    fn tally(&self, at: u32) -> &T {
        let (band, at) = self.place(at);
        &self.bands[band].tallies[at]
    }

    fn tally_mut(&mut self, at: u32) -> &mut T {
        let (band, at) = self.place(at);
        &mut self.bands[band].tallies[at]
    }
}

impl<T: Tally> Band<T> {
    /// Memory of the components so far.
    fn bytes(&self) -> usize {
        let component = T::BYTES + 3 * size_of::<u32>();
        self.tallies.len() * component + size_of_val(&self.corners[..]) + size_of_val(&self.runs[..])
    }

    /// Reads the rows of the band. `EIGHT` is true where corners join. Adds to `used` the bytes that this
    /// takes, and stops where all bands together take more than there may be.
    ///
    /// Each row is read in short loops: runs, then their labels, then their sums. One loop for all of it has
    /// more values than a processor has registers.
    #[inline(always)]
    fn read<const EIGHT: bool>(
        &mut self,
        work: &Work<'_>,
        rows: Range<usize>,
        used: &AtomicUsize,
        picture: T::Picture<'_>,
    ) {
        for list in [&mut self.row, &mut self.above, &mut self.runs, &mut self.first] {
            list.clear();
        }
        self.labels.clear();
        self.tallies.clear();
        self.corners.clear();
        self.ends.clear();
        self.is_full = false;
        let mut own = 0;
        // A run for every other pixel, and one behind the last.
        self.edges.resize(work.size.width + 2, 0);
        for y in rows.clone() {
            std::mem::swap(&mut self.row, &mut self.above);
            let count = find_edges(work.bits.row(y), work.size.width, &mut self.edges);
            let (ends, _) = self.edges[..count].as_chunks::<2>();
            self.row.clear();
            self.row.extend(ends.iter().map(|&[start, end]| Run { start, end, label: 0 }));
            self.label::<EIGHT>(y);
            self.add_row(&T::row(&picture, y), y);
            if y == rows.start {
                self.first.extend_from_slice(&self.row);
            }
            if work.is_kept {
                self.runs.extend_from_slice(&self.row);
                self.ends.push(self.runs.len());
            }
            let more = self.bytes() - own;
            own += more;
            if used.fetch_add(more, Ordering::Relaxed) + more > work.memory.0 as usize {
                self.is_full = true;
                return;
            }
        }
        add_up(&mut self.labels, &mut self.tallies);
        let (labels, tallies) = (&self.labels, &mut self.tallies);
        let is_all = rows.len() == work.size.height;
        self.corners.retain_mut(|pair| {
            let [one, other] = pair.map(|label| labels[label as usize]);
            *pair = [one, other];
            if one == other {
                tallies[one as usize].add_pairs(Pairs { corners: 1, ..Pairs::default() });
            }
            // They can be joined elsewhere only if both leave the band.
            let leaves = |label: u32| tallies[label as usize].reaches(&rows);
            one != other && !is_all && leaves(one) && leaves(other)
        });
    }

    /// Gives the runs of row `y` their labels, and counts their pairs with the runs above.
    #[inline(always)]
    fn label<const EIGHT: bool>(&mut self, y: usize) {
        let Self { labels, tallies, corners, row, above, pairs, .. } = self;
        pairs.clear();
        pairs.resize(row.len(), Pairs::default());
        let mut from = 0;
        for (run, all_pairs) in row.iter_mut().zip(pairs) {
            let (mut joined, mut sum) = (u32::MAX, Pairs::default());
            // At most one on each side.
            let (mut at_corners, mut count) = ([0; 2], 0);
            meet(above, run, &mut from, |above, pairs| {
                if EIGHT || pairs.edges > 0 {
                    sum.add(pairs);
                    let label = root(labels, above.label);
                    if joined != label {
                        if joined != u32::MAX {
                            labels[label.max(joined) as usize] = label.min(joined);
                        }
                        joined = label.min(joined);
                    }
                } else if T::COUNTS_PAIRS {
                    at_corners[count] = above.label;
                    count += 1;
                }
            });
            if joined == u32::MAX {
                joined = labels.len() as u32;
                labels.push(joined);
                tallies.push(T::before(y));
            }
            run.label = joined;
            *all_pairs = sum;
            for &label in &at_corners[..count] {
                corners.push([label, joined]);
            }
        }
    }

    /// Adds the runs of row `y` to their components, those beside each other in one component together.
    #[inline(always)]
    fn add_row(&mut self, scene: &T::Row<'_>, y: usize) {
        let tallies = self.tallies.as_mut_slice();
        let mut runs = self.row.iter().zip(&self.pairs);
        let Some((run, &pairs)) = runs.next() else { return };
        let (mut label, mut part) = (run.label, T::part(run, pairs, scene));
        for (run, &pairs) in runs {
            if run.label == label {
                T::extend(&mut part, run, pairs, scene);
            } else {
                tallies[label as usize].add_part(&part, y);
                (label, part) = (run.label, T::part(run, pairs, scene));
            }
        }
        tallies[label as usize].add_part(&part, y);
    }
}

/// Adds the tallies of joined labels to that of the first of them, and moves those up: `labels` then has the
/// place of each label's component.
#[inline(always)]
fn add_up<T: Tally>(labels: &mut [u32], tallies: &mut Vec<T>) {
    let mut count = 0;
    for at in 0..labels.len() {
        let first = labels[at] as usize;
        if first == at {
            // Where nothing was joined yet, nothing moves.
            if count != at {
                tallies[count] = tallies[at];
            }
            labels[at] = count as u32;
            count += 1;
        } else {
            // It comes before this one, so it has its place.
            let (place, own) = (labels[first], tallies[at]);
            tallies[place as usize].join(&own);
            labels[at] = place;
        }
    }
    tallies.truncate(count);
}

/// The first of the labels that this one is joined with.
#[inline(always)]
fn root(labels: &mut [u32], mut label: u32) -> u32 {
    loop {
        let next = labels[label as usize];
        if next == label {
            return label;
        }
        // Halves the way for those who come later.
        let after = labels[next as usize];
        labels[label as usize] = after;
        label = after;
    }
}

/// Joins two labels under the first of all that are joined.
fn unite(labels: &mut [u32], one: u32, other: u32) {
    let (one, other) = (root(labels, one), root(labels, other));
    labels[one.max(other) as usize] = one.min(other);
}

/// Writes the columns at which runs begin and end, by turns, and returns how many there are.
#[inline(always)]
fn find_edges(words: &[u64], width: usize, edges: &mut [u32]) -> usize {
    let (mut count, mut carry) = (0, 0);
    for (at, &word) in words.iter().enumerate() {
        let mut changes = word ^ (word << 1 | carry);
        carry = word >> 63;
        while changes != 0 {
            edges[count] = (64 * at) as u32 + changes.trailing_zeros();
            count += 1;
            changes &= changes - 1;
        }
    }
    // Bits behind the end are 0: a run that ends with the row has its end, unless the word does too.
    if carry == 1 {
        edges[count] = width as u32;
        count += 1;
    }
    count
}

/// Calls `visit` with each run of the row above that touches `run`, and the pairs of their pixels. `from` is
/// where to begin, and becomes the place for the next run of the row.
#[inline(always)]
fn meet(above: &[Run], run: &Run, from: &mut usize, mut visit: impl FnMut(&Run, Pairs)) {
    while above.get(*from).is_some_and(|other| other.end < run.start) {
        *from += 1;
    }
    while let Some(other) = above.get(*from).filter(|other| other.start <= run.end) {
        let edges = run.end.min(other.end) - run.start.max(other.start);
        // Each pixel has two of the row above at its corners, but for those at ends that both have, and ends
        // that the other has not.
        let is_end = [run.end != other.end, run.start == other.start].map(u32::from);
        let corners = if edges == 0 { 1 } else { 2 * edges - 1 + is_end[0] - is_end[1] };
        visit(other, Pairs { edges, corners, runs: 1 });
        // A run that reaches further may touch the next one too.
        if other.end > run.end {
            break;
        }
        *from += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Bounds, Cleaning, ObjectColour};
    use crate::reference;

    /// A mask and the luma below it, in rows longer than they are wide, the padding poisoned.
    struct Padded {
        mask: Vec<u8>,
        luma: Vec<u8>,
        size: Size,
        stride: usize,
    }

    impl Padded {
        fn new(
            size: Size,
            stride: usize,
            is_white: impl Fn(usize, usize) -> bool,
            random: &mut Random,
        ) -> Self {
            // Both look like something else where they are read in spite of it.
            let (mut mask, mut luma) = (Vec::new(), Vec::new());
            for y in 0..size.height {
                for x in 0..stride {
                    let white = if x < size.width { is_white(x, y) } else { (x + y).is_multiple_of(2) };
                    mask.push(if white { 255 } else { 0 });
                    luma.push(if x < size.width { random.below(256) as u8 } else { 0 });
                }
            }
            Self { mask, luma, size, stride }
        }

        fn mask(&self) -> PlaneRef<'_> {
            PlaneRef::new(&self.mask, self.size, self.stride)
        }

        fn luma(&self) -> PlaneRef<'_> {
            PlaneRef::new(&self.luma, self.size, self.stride)
        }
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            ((self.0 >> 20) % end as u64) as usize
        }

        /// Usually none, else an odd number up to 2 `most` + 1.
        fn square(&mut self, most: usize) -> Option<crate::config::Square> {
            (self.below(3) == 0).then(|| (2 * self.below(most) + 3).to_string().parse().unwrap())
        }

        fn spec(&mut self) -> ObjectSpec {
            let bounds = |random: &mut Self, most| Bounds {
                min: (random.below(3) == 0).then(|| random.below(most)),
                max: (random.below(3) == 0).then(|| most + random.below(900)),
            };
            let Bounds { min, max } = bounds(self, 4);
            let side = |side: Option<usize>| side.map(|side| Size::new(side.div_ceil(2), side));
            ObjectSpec {
                colour: [ObjectColour::White, ObjectColour::Black][self.below(2)],
                connectivity: [Connectivity::Four, Connectivity::Eight][self.below(2)],
                cleaning: Cleaning {
                    open: self.square(3),
                    close: self.square(3),
                    fill_holes: self.below(3) == 0,
                },
                area: bounds(self, 20),
                size: Bounds { min: side(min), max: side(max) },
                max: (self.below(4) == 0).then(|| self.below(30)),
            }
        }

        fn picture(&mut self, case: usize) -> Padded {
            let sides = if case.is_multiple_of(40) {
                (513, 257)
            } else if case.is_multiple_of(4) {
                (150, 90)
            } else {
                (40, 20)
            };
            let size = Size::new(1 + self.below(sides.0), 1 + self.below(sides.1));
            let (w, h) = (size.width, size.height);
            let stride = w + self.below(70);
            let (share, cell) = (self.below(101), 1 + self.below(9));
            let noise: Vec<bool> = (0..size.area()).map(|_| self.below(100) < share).collect();
            let kind = self.below(11);
            let line = if kind == 10 { spiral(size) } else { Vec::new() };
            let is_white = |x: usize, y: usize| match kind {
                0..=3 => noise[y * w + x],
                4 | 5 => noise[y / cell * w + x / cell],
                6 => true,
                7 => [x, y][cell % 2].is_multiple_of(1 + cell / 2),
                8 => (x + y).is_multiple_of(2),
                9 => {
                    // Frames in each other, with a gap in each.
                    let depth = x.min(y).min(w - 1 - x).min(h - 1 - y);
                    depth.is_multiple_of(2) && (cell.is_multiple_of(2) || x != depth || y != depth + 1)
                }
                _ => line[y * w + x],
            };
            Padded::new(size, stride, is_white, self)
        }
    }

    /// A line of one pixel that turns inwards, one pixel away from itself.
    fn spiral(size: Size) -> Vec<bool> {
        let mut has = vec![false; size.area()];
        let (mut x, mut y, mut dx, mut dy) = (0_i64, 0_i64, 1_i64, 0_i64);
        loop {
            has[y as usize * size.width + x as usize] = true;
            let is_free = |x: i64, y: i64| {
                let is_inside = x >= 0 && y >= 0 && x < size.width as i64 && y < size.height as i64;
                is_inside && !has[y as usize * size.width + x as usize]
            };
            let is_drawn = |x: i64, y: i64| {
                let is_inside = x >= 0 && y >= 0 && x < size.width as i64 && y < size.height as i64;
                is_inside && has[y as usize * size.width + x as usize]
            };
            let goes = |dx: i64, dy: i64| is_free(x + dx, y + dy) && !is_drawn(x + 2 * dx, y + 2 * dy);
            if !goes(dx, dy) {
                (dx, dy) = (-dy, dx);
                if !goes(dx, dy) {
                    return has;
                }
            }
            (x, y) = (x + dx, y + dy);
        }
    }

    fn with_threads<T: Send>(threads: usize, f: impl FnOnce() -> T + Send) -> T {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(f)
    }

    #[track_caller]
    fn assert_same(picture: &Padded, spec: &ObjectSpec, level: Level, threads: usize) {
        let expected = reference::objects::find(picture.mask(), picture.luma(), spec);
        let mut finder = ObjectFinder::at(level, spec, picture.size, None).unwrap();
        // The second run starts from what the first left behind.
        for run in 0..2 {
            let mut objects = Vec::new();
            let more = with_threads(threads, || {
                finder.clean(picture.mask())?;
                finder.find(picture.luma(), &mut objects)
            });
            let mut mask = Plane::from_vec(vec![7; 15], Size::new(5, 3));
            finder.cleaned(&mut mask);
            let what = format!("{} {spec:?} {level} {threads} threads, run {run}", picture.size);
            assert!(mask == expected.mask, "masks: {what}");
            assert_eq!(more.unwrap(), expected.more, "{what}");
            assert!(
                objects.len() == expected.objects.len(),
                "{} {} {what}",
                objects.len(),
                expected.objects.len()
            );
            for (got, expected) in objects.iter().zip(&expected.objects) {
                assert_eq!(got, expected, "{what}");
            }
        }
    }

    #[test]
    fn objects_are_the_references_on_2000_random_masks() {
        let (mut random, levels) = (Random(0x1357_9bdf_0246), Level::available());
        for case in 0..2000 {
            let (picture, spec) = (random.picture(case), random.spec());
            assert_same(&picture, &spec, levels[case % levels.len()], 1 + random.below(5));
        }
    }

    #[test]
    fn masks_of_one_pixel_or_line_have_the_references_objects() {
        let mut random = Random(99);
        for (w, h) in [(1, 1), (1, 70), (70, 1), (64, 2), (65, 3), (63, 3), (128, 1)] {
            for white in [true, false] {
                let picture = Padded::new(Size::new(w, h), w + 3, |_, _| white, &mut random);
                for _ in 0..8 {
                    assert_same(&picture, &random.spec(), Level::best(), 3);
                }
            }
        }
    }

    #[test]
    fn large_squares_open_and_close_as_the_reference() {
        let mut random = Random(5);
        for side in ["31", "63", "65", "129", "255"] {
            let size = Size::new(150 + random.below(60), 40 + random.below(60));
            let holes: Vec<(usize, usize)> = (0..3).map(|_| (random.below(210), random.below(100))).collect();
            let is_white = |x, y| !holes.contains(&(x, y));
            let picture = Padded::new(size, size.width + 5, is_white, &mut random);
            for colour in [ObjectColour::White, ObjectColour::Black] {
                let square = Some(side.parse().unwrap());
                for cleaning in [
                    Cleaning { open: square, ..Cleaning::default() },
                    Cleaning { close: square, ..Cleaning::default() },
                ] {
                    let spec = ObjectSpec { colour, cleaning, ..ObjectSpec::default() };
                    assert_same(&picture, &spec, Level::best(), 2);
                }
            }
        }
    }

    #[test]
    fn a_mask_of_too_many_objects_for_the_memory_is_refused_and_the_next_one_is_not() {
        let size = Size::new(200, 200);
        let mut random = Random(5);
        let dots = Padded::new(size, 200, |x, y| x.is_multiple_of(2) && y.is_multiple_of(2), &mut random);
        let one = Padded::new(size, 200, |x, y| x > 3 && y > 3, &mut random);
        let mut finder = ObjectFinder::new(&ObjectSpec::default(), size, Some(Bytes(1 << 20))).unwrap();
        let mut objects = Vec::new();
        finder.clean(dots.mask()).unwrap();
        let said = finder.find(dots.luma(), &mut objects).unwrap_err().to_string();
        assert!(said.contains("the objects of a mask of 200x200") && said.contains("--open"), "{said}");
        finder.clean(one.mask()).unwrap();
        assert_eq!((finder.find(one.luma(), &mut objects).unwrap(), objects.len()), (0, 1));
    }

    #[test]
    fn the_memory_limit_is_the_same_for_objects_in_one_place_and_for_any_number_of_threads() {
        let size = Size::new(160, 320);
        let mut random = Random(7);
        let is_dot = |x: usize, y: usize| y < 40 && x.is_multiple_of(2) && y.is_multiple_of(2);
        let dots = Padded::new(size, 160, is_dot, &mut random);
        let found = |limit: u64, threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut finder = ObjectFinder::new(&ObjectSpec::default(), size, Some(Bytes(limit)))?;
                let mut objects = Vec::new();
                finder.clean(dots.mask())?;
                finder.find(dots.luma(), &mut objects).map(|_| objects.len())
            })
        };
        let bytes = 1600 * (<Sums as Tally>::BYTES + 3 * size_of::<u32>()) as u64;
        for threads in [1, 8] {
            assert_eq!(found(bytes, threads).unwrap(), 1600, "{threads} threads");
            assert!(found(bytes - 1, threads).is_err(), "{threads} threads");
        }
    }

    #[test]
    fn an_empty_mask_has_no_objects() {
        let empty = PlaneRef::new(&[], Size::new(0, 4), 0);
        let mut finder = ObjectFinder::new(&ObjectSpec::default(), Size::new(0, 4), None).unwrap();
        let mut objects = Vec::new();
        finder.clean(empty).unwrap();
        assert_eq!(finder.find(empty, &mut objects).unwrap(), 0);
        assert!(objects.is_empty());
    }
}
