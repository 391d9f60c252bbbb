//! Components of packed bits, by bands of rows: which runs belong together, and what their tallies are.

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

/// Pixels beside each other in a row, from `start` to before `end`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Run {
    pub(super) start: u32,
    pub(super) end: u32,
    /// A component of the band that it belongs to: one of those that are joined.
    label: u32,
}

/// Pairs of pixels of two runs in rows above each other.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pairs {
    /// Pairs that share an edge.
    pub(super) edges: u32,
    /// Pairs that share a corner.
    pub(super) corners: u32,
    /// Pairs of runs.
    pub(super) runs: i32,
}

impl Pairs {
    #[inline(always)]
    pub(super) fn add(&mut self, other: Self) {
        self.edges += other.edges;
        self.corners += other.corners;
        self.runs += other.runs;
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
    /// Rows in a band.
    pub(super) rows: usize,
    pub(super) bands: Vec<Band<T>>,
    /// Where the components of each band begin among all.
    begins: Vec<u32>,
    /// For each component of a band, the first of those that it is joined with, or itself.
    joined: Vec<u32>,
    /// Components of two bands whose pixels share only a corner, and pairs to add to components.
    corners: Vec<[u32; 2]>,
    added: Vec<(u32, Pairs)>,
}

impl<T> Default for Labelling<T> {
    fn default() -> Self {
        Self {
            rows: 0,
            bands: Vec::new(),
            begins: Vec::new(),
            joined: Vec::new(),
            corners: Vec::new(),
            added: Vec::new(),
        }
    }
}

/// Components of a band of rows.
pub(super) struct Band<T> {
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
    pub(super) runs: Vec<Run>,
    pub(super) ends: Vec<usize>,
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
    pub(super) fn label(&mut self, work: &Work<'_>, picture: T::Picture<'_>) -> Result<()> {
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
            // The memory when it was given up: all of it would take more.
            return Err(too_many(size, Bytes(used.into_inner() as u64), work.memory));
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
        let (mut corners, mut added) = (std::mem::take(&mut self.corners), std::mem::take(&mut self.added));
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
        for [one, other] in corners.drain(..) {
            if root(&mut self.joined, one) == root(&mut self.joined, other) {
                added.push((one, Pairs { corners: 1, ..Pairs::default() }));
            }
        }
        for (at, pairs) in added.drain(..) {
            self.tally_mut(at).add_pairs(pairs);
        }
        (self.corners, self.added) = (corners, added);
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
    pub(super) fn components(&self) -> impl Iterator<Item = u32> {
        let joined = self.joined.iter().enumerate();
        joined.filter(|(at, first)| *at == **first as usize).map(|(_, &first)| first)
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

impl<T: Tally> Band<T> {
    /// Memory of the components so far.
    fn bytes(&self, lists: usize) -> usize {
        let component = T::bytes(lists) + 3 * size_of::<u32>();
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
            let more = self.bytes(work.lists) - own;
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
