//! The components of a mask that hold a pixel of another one.

use std::ops::Range;

use rayon::prelude::*;

use super::labelling::{Labelling, Rows, Run, Work, strip_height};
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
    /// Every white pixel of `few` is white in `all`.
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
            // A strip's run has the pixels of all its rows in these columns.
            let strips = pixels.chunks_mut(strip_height(Connectivity::Eight) * width);
            for (strip, &end) in strips.zip(&band.ends) {
                for run in &band.runs[begin..end] {
                    let is_chosen = components.tally(components.component_of(index, run)).0;
                    for row in strip.chunks_mut(width) {
                        let pixels = &mut row[run.start as usize..run.end as usize];
                        if is_chosen {
                            count += pixels.iter().map(|&value| u64::from(value & 1)).sum::<u64>();
                        } else {
                            pixels.fill(0);
                        }
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
    const COUNTS: bool = false;
    type Picture<'a> = PlaneRef<'a>;
    /// Two rows; the last one of the picture twice where there is no other.
    type Strip<'a> = [&'a [u8]; 2];

    fn bytes_at_end(_: usize) -> usize {
        0
    }

    #[inline(always)]
    fn strip<'a>(picture: &Self::Picture<'a>, y: usize) -> Self::Strip<'a> {
        [y, y + 1].map(|y| picture.row(y.min(picture.size().height - 1)))
    }

    #[inline(always)]
    fn before(_: usize) -> Self {
        Self(false)
    }

    #[inline(always)]
    fn add<const EIGHT: bool>(&mut self, run: &Run, _: &Rows<'_>, strip: &Self::Strip<'_>) {
        let rows = if EIGHT { &strip[..] } else { &strip[..1] };
        let holds = |row: &&[u8]| row[run.start as usize..run.end as usize].iter().any(|&value| value != 0);
        self.0 = self.0 || rows.iter().any(holds);
    }

    #[inline(always)]
    fn add_corner(&mut self) {}

    #[inline(always)]
    fn join(&mut self, other: &Self) {
        self.0 |= other.0;
    }

    fn reaches(&self, _: &Range<usize>) -> bool {
        false
    }
}
