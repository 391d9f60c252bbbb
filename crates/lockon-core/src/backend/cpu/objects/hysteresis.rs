//! The components of a mask that hold a pixel of another one.

use std::ops::Range;

use rayon::prelude::*;

use super::labelling::{Labelling, Pairs, Run, Work};
use super::tally::Tally;
use crate::backend::cpu::bits::Bits;
use crate::backend::cpu::simd::Level;
use crate::config::{Connectivity, ObjectColour};
use crate::error::Bytes;
use crate::frame::{Plane, PlaneRef, Size};

/// Chooses components of masks of one size.
pub(in crate::backend::cpu) struct Hysteresis {
    level: Level,
    size: Size,
    bits: Bits,
    components: Labelling<Holds>,
}

impl Hysteresis {
    pub(in crate::backend::cpu) fn new(level: Level, size: Size) -> Self {
        Self { level, size, bits: Bits::new(level, size), components: Labelling::default() }
    }

    /// Leaves in `all` the white components, by 8 neighbours, that hold a white pixel of `few`, and returns
    /// the number of their pixels. White is 255, all else is 0.
    ///
    /// Uses the threads of the rayon pool that it is called in; their number does not change the result.
    ///
    /// # Panics
    /// If one of the masks has another size than this was made for, or no pixels.
    pub(in crate::backend::cpu) fn choose(&mut self, all: &mut Plane, few: PlaneRef<'_>) -> u64 {
        assert!(all.size() == self.size && few.size() == self.size, "masks of another size");
        self.bits.take(all.as_ref(), ObjectColour::White);
        let work = Work {
            level: self.level,
            size: self.size,
            connectivity: Connectivity::Eight,
            bits: &self.bits,
            is_kept: true,
            memory: Bytes(u64::MAX),
            lists: 0,
        };
        self.components.label(&work, few).expect("the memory is not limited");
        let (components, width) = (&self.components, self.size.width);
        let bands = all.data_mut().par_chunks_mut(components.rows * width).enumerate();
        let of_band = |(index, pixels): (usize, &mut [u8])| {
            let band = &components.bands[index];
            let (mut begin, mut count) = (0, 0);
            for (row, &end) in pixels.chunks_mut(width).zip(&band.ends) {
                for run in &band.runs[begin..end] {
                    let pixels = &mut row[run.start as usize..run.end as usize];
                    if components.tally(components.component_of(index, run)).0 {
                        count += pixels.len() as u64;
                    } else {
                        pixels.fill(0);
                    }
                }
                begin = end;
            }
            count
        };
        bands.map(of_band).sum()
    }
}

/// True for a component that holds a white pixel of the other mask.
#[derive(Debug, Clone, Copy)]
struct Holds(bool);

impl Tally for Holds {
    const COUNTS_PAIRS: bool = false;
    type Picture<'a> = PlaneRef<'a>;
    type Row<'a> = &'a [u8];
    type Part = bool;

    fn bytes(_: usize) -> usize {
        size_of::<Self>()
    }

    #[inline(always)]
    fn row<'a>(picture: &Self::Picture<'a>, y: usize) -> Self::Row<'a> {
        picture.row(y)
    }

    #[inline(always)]
    fn part(run: &Run, _: Pairs, row: &Self::Row<'_>) -> bool {
        row[run.start as usize..run.end as usize].iter().any(|&value| value != 0)
    }

    #[inline(always)]
    fn extend(part: &mut bool, run: &Run, pairs: Pairs, row: &Self::Row<'_>) {
        *part = *part || Self::part(run, pairs, row);
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
