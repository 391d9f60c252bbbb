//! Components of packed bits, by bands of rows: which runs belong together, and what their tallies are.
//!
//! A band is read in strips of rows. With 8 neighbours a strip has two rows: pixels in columns beside each
//! other then touch, whichever of the two rows they are in, so all pixels in a run of columns belong
//! together, and noise has a third as many such runs as it has runs of pixels. With 4 neighbours a strip is
//! one row. Words of 64 columns say where two strips touch, once for each pair of runs, and how many runs
//! begin before a column, which is a run's place in the list.
//!
//! Blocks of two rows after C. Grana, D. Borghesani, R. Cucchiara, "Optimized Block-Based Connected
//! Components Labeling with Decision Trees", 2010.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::tally::Tally;
use crate::backend::cpu::bits::Bits;
use crate::backend::cpu::simd::Level;
use crate::backend::objects::too_many;
use crate::config::Connectivity;
use crate::error::{Bytes, Result};
use crate::frame::Size;

/// Columns beside each other in which a strip has pixels, from `start` to before `end`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) start: u32,
    pub(super) end: u32,
    /// A component of the band that it belongs to: one of those that are joined.
    label: u32,
}

/// A run that has no label yet.
const NONE: u32 = u32::MAX;

/// The rows of a strip, and those beside it. Rows beyond the picture have no pixels.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    /// The row of `top`.
    pub(super) y: usize,
    pub(super) above: &'a [u64],
    pub(super) top: &'a [u64],
    /// The second row; without pixels where strips have one row.
    pub(super) low: &'a [u64],
    pub(super) below: &'a [u64],
}

impl<'a> Rows<'a> {
    fn new<const EIGHT: bool>(bits: &'a Bits, empty: &'a [u64], y: usize, height: usize) -> Self {
        let row = |y: usize| if y < height { bits.row(y) } else { empty };
        Self {
            y,
            above: if y > 0 { row(y - 1) } else { empty },
            top: row(y),
            low: if EIGHT { row(y + 1) } else { empty },
            below: row(y + if EIGHT { 2 } else { 1 }),
        }
    }
}

/// Rows of a strip.
pub(super) const fn strip_height(connectivity: Connectivity) -> usize {
    match connectivity {
        Connectivity::Four => 1,
        Connectivity::Eight => 2,
    }
}

/// The mask whose components are found, and how.
pub(super) struct Work<'a> {
    pub(super) level: Level,
    pub(super) size: Size,
    pub(super) connectivity: Connectivity,
    pub(super) bits: &'a Bits,
    /// All runs are kept, with their components.
    pub(super) is_kept: bool,
    pub(super) memory: Bytes,
    /// Lists of objects that exist at the same time.
    pub(super) lists: usize,
}

/// Components of a mask, by bands of rows.
pub(super) struct Labelling<T> {
    /// Rows in a band: whole strips.
    pub(super) rows: usize,
    pub(super) bands: Vec<Band<T>>,
    /// Where the components of each band begin among all, and where its single pixels do.
    begins: Vec<u32>,
    single_begins: Vec<u32>,
    /// For each component of a band, the first of those that it is joined with, or itself.
    joined: Vec<u32>,
    /// Components of two bands whose pixels share only a corner.
    corners: Vec<[u32; 2]>,
    /// A row without pixels.
    empty: Vec<u64>,
}

impl<T> Default for Labelling<T> {
    fn default() -> Self {
        Self {
            rows: 0,
            bands: Vec::new(),
            begins: Vec::new(),
            single_begins: Vec::new(),
            joined: Vec::new(),
            corners: Vec::new(),
            empty: Vec::new(),
        }
    }
}

/// The columns of a strip that have pixels, but for those that are components by themselves, and the runs of
/// these columns.
#[derive(Default)]
struct Strip {
    columns: Vec<u64>,
    runs: Vec<Run>,
}

/// Components of a band of rows.
pub(super) struct Band<T> {
    /// For each label the label that it is joined with, or itself; then the component. Labels are in the
    /// order of the first pixels of what they were made for.
    labels: Vec<u32>,
    tallies: Vec<T>,
    /// The first pixel of each: its row in the upper half, its column in the lower.
    firsts: Vec<u64>,
    /// Components of one pixel, where pixels are counted: as `firsts`.
    singles: Vec<u64>,
    /// Pairs of labels whose pixels share a corner, which joins only 8-connected ones. Both may belong to one
    /// component all the same.
    corners: Vec<[u32; 2]>,
    /// Where runs begin and end in a strip.
    edges: Vec<u32>,
    /// Runs and single pixels of the second row of a strip, which come after those of its first.
    later: Vec<u32>,
    later_singles: Vec<u64>,
    /// The first strip, the last one that was read, and the one above that.
    first: Strip,
    strip: Strip,
    above: Strip,
    /// All runs, where they are kept, and where each strip ends among them.
    pub(super) runs: Vec<Run>,
    pub(super) ends: Vec<usize>,
    is_full: bool,
}

impl<T> Default for Band<T> {
    fn default() -> Self {
        Self {
            labels: Vec::new(),
            tallies: Vec::new(),
            firsts: Vec::new(),
            singles: Vec::new(),
            corners: Vec::new(),
            edges: Vec::new(),
            later: Vec::new(),
            later_singles: Vec::new(),
            first: Strip::default(),
            strip: Strip::default(),
            above: Strip::default(),
            runs: Vec::new(),
            ends: Vec::new(),
            is_full: false,
        }
    }
}

/// A component of the mask: a tally, or a pixel by itself.
pub(super) enum Component<'a, T> {
    Tally(&'a T),
    /// Its column and row.
    Single(usize, usize),
}

/// Set in the numbers of components that are single pixels.
const SINGLE: u32 = 1 << 31;

impl<T: Tally> Labelling<T> {
    /// Finds the components of a mask.
    pub(super) fn label(&mut self, work: &Work<'_>, picture: T::Picture<'_>) -> Result<()> {
        let size = work.size;
        let strip = strip_height(work.connectivity);
        self.rows = size.height.div_ceil(rayon::current_num_threads()).next_multiple_of(strip);
        let count = size.height.div_ceil(self.rows);
        self.bands.resize_with(count, Band::default);
        self.empty.clear();
        self.empty.resize(work.bits.row(0).len(), 0);
        let used = AtomicUsize::new(0);
        let (rows, empty) = (self.rows, &self.empty);
        let rows_of = |index: usize| index * rows..((index + 1) * rows).min(size.height);
        self.bands.par_iter_mut().enumerate().for_each(|(index, band)| {
            work.level.run(
                #[inline(always)]
                || match work.connectivity {
                    Connectivity::Four => band.read::<false>(work, empty, rows_of(index), &used, picture),
                    Connectivity::Eight => band.read::<true>(work, empty, rows_of(index), &used, picture),
                },
            );
        });
        if self.bands.iter().any(|band| band.is_full) {
            // The memory when it was given up: all of it would take more.
            return Err(too_many(size, Bytes(used.into_inner() as u64), work.memory));
        }
        match work.connectivity {
            Connectivity::Four => self.join::<false>(work),
            Connectivity::Eight => self.join::<true>(work),
        }
        Ok(())
    }

    /// Joins the components of bands.
    fn join<const EIGHT: bool>(&mut self, work: &Work<'_>) {
        let (mut count, mut singles) = (0, 0);
        self.begins.clear();
        self.single_begins.clear();
        for band in &self.bands {
            self.begins.push(count);
            self.single_begins.push(singles);
            count += band.tallies.len() as u32;
            singles += band.singles.len() as u32;
        }
        self.joined.clear();
        self.joined.extend(0..count);
        let mut corners = std::mem::take(&mut self.corners);
        let joined = &mut self.joined;
        for (index, pair) in self.bands.windows(2).enumerate() {
            let [upper, lower] = [&pair[0], &pair[1]];
            let (over, under) = (&upper.strip, &lower.first);
            let of = |band: &Band<T>, begin: usize, run: &Run| {
                self.begins[begin] + band.labels[run.label as usize]
            };
            let of_both = |one: usize, other: usize| {
                [of(upper, index, &over.runs[one]), of(lower, index + 1, &under.runs[other])]
            };
            let y = (index + 1) * self.rows;
            meet::<EIGHT>([work.bits.row(y - 1), work.bits.row(y)], [over, under], |one, other| {
                let [one, other] = of_both(one, other);
                unite(joined, one, other);
            });
            if !EIGHT && T::COUNTS {
                meet_at_corners([over, under], |one, other| corners.push(of_both(one, other)));
            }
        }
        for (band, begin) in self.bands.iter().zip(&self.begins) {
            corners.extend(band.corners.iter().map(|pair| pair.map(|part| begin + part)));
        }
        for [one, other] in corners.drain(..) {
            if root(&mut self.joined, one) == root(&mut self.joined, other) {
                self.tally_mut(one).add_corner();
            }
        }
        self.corners = corners;
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

    /// Writes the components, in the order of their first pixels.
    pub(super) fn components(&self, components: &mut Vec<u32>) {
        components.clear();
        for (index, band) in self.bands.iter().enumerate() {
            let begin = self.begins[index] as usize;
            let joined = self.joined[begin..][..band.tallies.len()].iter().zip(begin as u32..);
            let mut singles = band.singles.iter().zip(self.single_begins[index]..).peekable();
            for ((&root, at), first) in joined.zip(&band.firsts) {
                if root == at {
                    while let Some((_, single)) = singles.next_if(|single| single.0 < first) {
                        components.push(SINGLE | single);
                    }
                    components.push(at);
                }
            }
            components.extend(singles.map(|(_, single)| SINGLE | single));
        }
    }

    /// A component that [`Self::components`] wrote.
    #[inline]
    pub(super) fn component(&self, at: u32) -> Component<'_, T> {
        if at & SINGLE == 0 {
            return Component::Tally(self.tally(at));
        }
        let at = at ^ SINGLE;
        let band = self.single_begins.partition_point(|begin| *begin <= at) - 1;
        let place = self.bands[band].singles[(at - self.single_begins[band]) as usize];
        Component::Single(place as u32 as usize, (place >> 32) as usize)
    }

    /// The component of a run of a band whose runs are kept.
    pub(super) fn component_of(&self, band: usize, run: &Run) -> u32 {
        self.joined[(self.begins[band] + self.bands[band].labels[run.label as usize]) as usize]
    }

    /// The band of a component, and its place there.
    fn place(&self, at: u32) -> (usize, usize) {
        let band = self.begins.partition_point(|begin| *begin <= at) - 1;
        (band, (at - self.begins[band]) as usize)
    }

    pub(super) fn tally(&self, at: u32) -> &T {
        let (band, at) = self.place(at);
        &self.bands[band].tallies[at]
    }

    fn tally_mut(&mut self, at: u32) -> &mut T {
        let (band, at) = self.place(at);
        &mut self.bands[band].tallies[at]
    }
}

/// Memory of a component of one pixel, with what is made of it at the end in so many lists.
pub(super) fn bytes_of_single<T: Tally>(lists: usize) -> usize {
    size_of::<u64>() + size_of::<u32>() + T::bytes_at_end(lists)
}

/// Memory of another component.
pub(super) fn bytes_of_component<T: Tally>(lists: usize) -> usize {
    size_of::<T>() + size_of::<u64>() + 3 * size_of::<u32>() + T::bytes_at_end(lists)
}

impl<T: Tally> Band<T> {
    /// Memory of the components so far.
    fn bytes(&self, lists: usize) -> usize {
        self.tallies.len() * bytes_of_component::<T>(lists)
            + self.singles.len() * bytes_of_single::<T>(lists)
            + size_of_val(&self.corners[..])
            + size_of_val(&self.runs[..])
    }

    /// Reads the rows of the band. `EIGHT` is true where corners join. Adds to `used` the bytes that this
    /// takes, and stops where all bands together take more than there may be.
    ///
    /// Each strip is read in short loops: columns, runs, labels, sums. One loop for all of it has more values
    /// than a processor has registers.
    #[inline(always)]
    fn read<const EIGHT: bool>(
        &mut self,
        work: &Work<'_>,
        empty: &[u64],
        rows: Range<usize>,
        used: &AtomicUsize,
        picture: T::Picture<'_>,
    ) {
        let Size { width, height } = work.size;
        for strip in [&mut self.strip, &mut self.above] {
            strip.columns.clear();
            strip.columns.resize(empty.len(), 0);
            strip.runs.clear();
        }
        self.runs.clear();
        self.labels.clear();
        self.tallies.clear();
        self.firsts.clear();
        self.singles.clear();
        self.corners.clear();
        self.ends.clear();
        self.is_full = false;
        let mut own = 0;
        // A run for every other pixel, and one behind the last.
        self.edges.resize(width + 2, 0);
        for y in rows.clone().step_by(strip_height(work.connectivity)) {
            std::mem::swap(&mut self.strip, &mut self.above);
            let strip = Rows::new::<EIGHT>(work.bits, empty, y, height);
            self.find_columns::<EIGHT>(&strip);
            let count = find_edges(&self.strip.columns, width, &mut self.edges);
            let (ends, _) = self.edges[..count].as_chunks::<2>();
            self.strip.runs.clear();
            self.strip.runs.extend(ends.iter().map(|&[start, end]| Run { start, end, label: NONE }));
            self.label::<EIGHT>(&strip, y == rows.start);
            let scene = T::strip(&picture, y);
            for run in &self.strip.runs {
                self.tallies[run.label as usize].add::<EIGHT>(run, &strip, &scene);
            }
            if y == rows.start {
                // In the memory of the frame before.
                self.first.columns.clone_from(&self.strip.columns);
                self.first.runs.clone_from(&self.strip.runs);
            }
            if work.is_kept {
                self.runs.extend_from_slice(&self.strip.runs);
                self.ends.push(self.runs.len());
            }
            let more = self.bytes(work.lists) - own;
            own += more;
            if used.fetch_add(more, Ordering::Relaxed) + more > work.memory.0 as usize {
                self.is_full = true;
                return;
            }
        }
        self.add_up();
        let (labels, tallies) = (&self.labels, &mut self.tallies);
        let is_all = rows.len() == height;
        self.corners.retain_mut(|pair| {
            let [one, other] = pair.map(|label| labels[label as usize]);
            *pair = [one, other];
            if one == other {
                tallies[one as usize].add_corner();
            }
            // They can be joined elsewhere only if both leave the band.
            let leaves = |label: u32| tallies[label as usize].reaches(&rows);
            one != other && !is_all && leaves(one) && leaves(other)
        });
    }

    /// Finds the columns of a strip that have pixels. Where pixels are counted, those that touch none are put
    /// with the singles instead, which takes no label and no sums.
    #[inline(always)]
    fn find_columns<const EIGHT: bool>(&mut self, rows: &Rows<'_>) {
        let Rows { y, above, top, low, below } = *rows;
        let columns = self.strip.columns.as_mut_slice();
        let count = columns.len();
        let (above, top, low, below) = (&above[..count], &top[..count], &low[..count], &below[..count]);
        if !T::COUNTS {
            for (at, columns) in columns.iter_mut().enumerate() {
                *columns = top[at] | low[at];
            }
            return;
        }
        self.later_singles.clear();
        // What is beside a pixel of the top row, and of the low one: any pixel of these rows.
        let near = |at: usize| {
            if EIGHT { [above[at] | top[at] | low[at], top[at] | low[at] | below[at]] } else { [top[at], 0] }
        };
        let (mut before, mut own) = ([0_u64; 2], near(0));
        for at in 0..count {
            let next = if at + 1 < count { near(at + 1) } else { [0; 2] };
            let has = top[at] | low[at];
            columns[at] = has;
            if has != 0 {
                let beside = |of: usize| own[of] << 1 | before[of] >> 63 | own[of] >> 1 | next[of] << 63;
                let (alone_top, alone_low) = if EIGHT {
                    (
                        top[at] & !(beside(0) | above[at] | low[at]),
                        low[at] & !(beside(1) | top[at] | below[at]),
                    )
                } else {
                    (top[at] & !(beside(0) | above[at] | below[at]), 0)
                };
                columns[at] = has & !(alone_top | alone_low);
                push_places(&mut self.singles, alone_top, 64 * at, y);
                if EIGHT {
                    push_places(&mut self.later_singles, alone_low, 64 * at, y + 1);
                }
            }
            (before, own) = (own, next);
        }
        if EIGHT {
            self.singles.extend_from_slice(&self.later_singles);
        }
    }

    /// Gives the runs of a strip their labels.
    #[inline(always)]
    fn label<const EIGHT: bool>(&mut self, rows: &Rows<'_>, is_first: bool) {
        let Self { labels, tallies, firsts, above, strip, later, .. } = self;
        if !is_first {
            let (over, under) = (&*above, &mut *strip);
            let Strip { columns, runs } = under;
            meet_columns::<EIGHT>([rows.above, rows.top], [&over.columns, columns], |one, other| {
                let label = root(labels, over.runs[one].label);
                let run = &mut runs[other];
                if run.label == NONE {
                    run.label = label;
                } else {
                    let own = root(labels, run.label);
                    labels[own.max(label) as usize] = own.min(label);
                    run.label = own.min(label);
                }
            });
        }
        let mut add = |x: u32, y: usize| {
            let label = labels.len() as u32;
            labels.push(label);
            tallies.push(T::before(y));
            firsts.push((y as u64) << 32 | u64::from(x));
            label
        };
        later.clear();
        for (run, at) in strip.runs.iter_mut().zip(0..) {
            if run.label == NONE {
                let first = if EIGHT { first_pixel(rows.top, run) } else { Some(run.start) };
                match first {
                    Some(x) => run.label = add(x, rows.y),
                    None => later.push(at),
                }
            }
        }
        // Their first pixels come after all of the top row.
        for &at in &*later {
            let run = &mut strip.runs[at as usize];
            run.label = add(run.start, rows.y + 1);
        }
        if !EIGHT && T::COUNTS && !is_first {
            let corners = &mut self.corners;
            meet_at_corners([above, strip], |one, other| {
                corners.push([above.runs[one].label, strip.runs[other].label]);
            });
        }
    }

    /// Adds the tallies of joined labels to that of the first of them, and moves those up: `labels` then has
    /// the place of each label's component.
    #[inline(always)]
    fn add_up(&mut self) {
        let Self { labels, tallies, firsts, .. } = self;
        let mut count = 0;
        for at in 0..labels.len() {
            let first = labels[at] as usize;
            if first == at {
                // Where nothing was joined yet, nothing moves.
                if count != at {
                    tallies[count] = tallies[at];
                    firsts[count] = firsts[at];
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
        firsts.truncate(count);
    }
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

/// Adds the places of a word's pixels, as `firsts` of a band has them.
#[inline(always)]
fn push_places(places: &mut Vec<u64>, mut word: u64, x: usize, y: usize) {
    let begin = (y as u64) << 32 | x as u64;
    while word != 0 {
        places.push(begin + u64::from(word.trailing_zeros()));
        word &= word - 1;
    }
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

/// The first pixel of a row in the columns of a run.
#[inline(always)]
pub(super) fn first_pixel(row: &[u64], run: &Run) -> Option<u32> {
    let (start, end) = (run.start as usize, run.end as usize);
    let mut word = row[start / 64] & u64::MAX << (start % 64);
    let mut at = start / 64;
    loop {
        let x = 64 * at + word.trailing_zeros() as usize;
        if word != 0 || x >= end {
            return (x < end).then_some(x as u32);
        }
        at += 1;
        word = if 64 * at < end { row[at] } else { 0 };
    }
}

/// As [`meet_columns`].
#[inline(always)]
fn meet<const EIGHT: bool>(rows: [&[u64]; 2], strips: [&Strip; 2], visit: impl FnMut(usize, usize)) {
    meet_columns::<EIGHT>(rows, strips.map(|strip| &strip.columns[..]), visit);
}

/// Calls `visit` with the places of each run of a strip and each of the strip below that touch, once. `rows`
/// are the last row of the one and the first of the other.
#[inline(always)]
fn meet_columns<const EIGHT: bool>(
    rows: [&[u64]; 2],
    columns: [&[u64]; 2],
    mut visit: impl FnMut(usize, usize),
) {
    let mut places = Places::default();
    // The last columns of the words before.
    let (mut last_rows, mut was_touching, mut was_seen) = ([0; 2], 0, 0);
    let words = rows[0].iter().zip(rows[1]).zip(columns[0].iter().zip(columns[1]));
    for ((&over, &under), (&columns_over, &columns_under)) in words {
        if columns_over | columns_under == 0 {
            // Whatever touches behind this begins after it.
            (last_rows, was_touching, was_seen) = ([0; 2], 0, 0);
            places.skip();
            continue;
        }
        let starts = places.starts([columns_over, columns_under]);
        let first = if EIGHT {
            // Two pixels at a corner count where the right one is: no run begins there but those of the two.
            let touching =
                over & under | under & (over << 1 | last_rows[0]) | over & (under << 1 | last_rows[1]);
            last_rows = [over >> 63, under >> 63];
            // A pair of runs touches in columns between which no run begins: the first of these is wanted.
            let inside = !(starts[0] | starts[1]);
            let (mut seen, mut pass) = (touching | inside & was_seen, inside);
            for by in [1, 2, 4, 8, 16, 32] {
                seen |= pass & seen << by;
                pass &= pass << by;
            }
            let first = touching & !((seen << 1 | was_seen) & inside);
            was_seen = seen >> 63;
            first
        } else {
            let touching = over & under;
            let first = touching & !(touching << 1 | was_touching);
            was_touching = touching >> 63;
            first
        };
        places.visit(first, starts, &mut visit);
    }
}

/// Calls `visit` with the places of runs of two strips of one row each whose pixels share a corner, for each
/// such pair of pixels that has no neighbour in common.
#[inline(always)]
fn meet_at_corners(strips: [&Strip; 2], mut visit: impl FnMut(usize, usize)) {
    let mut places = Places::default();
    let mut last = [0; 2];
    for (&over, &under) in strips[0].columns.iter().zip(&strips[1].columns) {
        let left = [over << 1 | last[0], under << 1 | last[1]];
        last = [over >> 63, under >> 63];
        let starts = places.starts([over, under]);
        let at_corner = under & left[0] & !(over | left[1]) | over & left[1] & !(under | left[0]);
        places.visit(at_corner, starts, &mut visit);
    }
}

/// The places of runs of two strips, word by word.
#[derive(Default)]
struct Places {
    /// Runs that begin before the word.
    before: [usize; 2],
    /// The last columns of the words before it.
    last: [u64; 2],
}

impl Places {
    /// The columns of a word at which runs begin.
    #[inline(always)]
    fn starts(&mut self, columns: [u64; 2]) -> [u64; 2] {
        let starts =
            [columns[0] & !(columns[0] << 1 | self.last[0]), columns[1] & !(columns[1] << 1 | self.last[1])];
        self.last = [columns[0] >> 63, columns[1] >> 63];
        starts
    }

    /// A word without columns.
    #[inline(always)]
    fn skip(&mut self) {
        self.last = [0; 2];
    }

    /// Calls `visit` with the places of the last runs that begin up to each of these columns.
    #[inline(always)]
    fn visit(&mut self, mut at: u64, starts: [u64; 2], visit: &mut impl FnMut(usize, usize)) {
        while at != 0 {
            let up_to = at ^ (at - 1);
            let (one, other) = ((starts[0] & up_to).count_ones(), (starts[1] & up_to).count_ones());
            visit(self.before[0] + one as usize - 1, self.before[1] + other as usize - 1);
            at &= at - 1;
        }
        for (before, starts) in self.before.iter_mut().zip(starts) {
            *before += starts.count_ones() as usize;
        }
    }
}
