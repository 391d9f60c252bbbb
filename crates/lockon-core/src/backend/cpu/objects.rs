//! Objects of a mask: runs of its packed bits, joined by union-find, with sums that grow as runs are read.
//!
//! Bands of rows are read in parallel, each in one pass over strips of one or two rows. A run of a strip that
//! touches no run above begins a component; one that touches several joins theirs. Everything that is
//! reported is a sum over pixels and pairs of pixels beside each other, counted by words of bits, so a run is
//! forgotten after the strip below it, and what was joined is added up once at the end of the band. Then the
//! rows on both sides of each border between bands are joined in the same way. A pixel that touches no other
//! is an object at once. All sums are integers: neither bands nor threads change a number.
//!
//! A component takes 124 bytes while it is read, one of a single pixel 12, and its object 112; with 4
//! neighbours a corner at which two runs touch takes 8, and where holes are filled a run of the background
//! 12. Memory is kept for the next mask. Components of a W x H mask are at most ceil(W/2) * ceil(H/2) with 8
//! neighbours, and ceil(W H / 2) with 4. What would take more memory than is allowed is refused while it is
//! read.
//!
//! Union by runs after L. He, Y. Chao, K. Suzuki, "A Run-Based Two-Scan Labeling Algorithm", 2008. Runs give
//! the Euler number too: two runs meet in one piece and three never, so it is the number of runs less the
//! number of pairs of runs that meet.

use rayon::prelude::*;

use super::bits::Bits;
use super::simd::Level;
use crate::backend::objects::{Measured, Sums, select};
use crate::config::ObjectSpec;
use crate::error::{Bytes, Result};
use crate::frame::{Plane, PlaneRef, Size};
use crate::memory;
use crate::results::Object;

pub(super) mod hysteresis;
mod labelling;
mod tally;

use labelling::{Component, Labelling, Work, strip_height};
use tally::{Growing, Outside, Scene, squares_before};

/// Finds the objects of masks of one size.
pub struct ObjectFinder {
    spec: ObjectSpec,
    size: Size,
    level: Level,
    memory: Bytes,
    lists: usize,
    bits: Bits,
    /// Where holes are filled.
    background: Option<Bits>,
    /// See [`squares_before`].
    squares: Vec<u64>,
    objects: Labelling<Growing>,
    /// The components of the objects.
    components: Vec<u32>,
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
            lists: 1,
            bits: Bits::new(level, size),
            background: spec.cleaning.fill_holes.then(|| Bits::new(level, size)),
            squares: squares_before(size.width),
            objects: Labelling::default(),
            components: Vec::new(),
            outside: Labelling::default(),
        })
    }

    /// Counts the memory of so many lists of objects: as many as exist at the same time.
    #[must_use]
    pub fn with_lists(self, lists: usize) -> Self {
        Self { lists, ..self }
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
        self.fill_holes()
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
            lists: self.lists,
        };
        self.objects.label(&work, Scene { luma, squares: &self.squares })?;
        self.objects.components(&mut self.components);
        let of = |at| match self.objects.component(at) {
            Component::Tally(sums) => Counted::Sums(sums),
            Component::Single(x, y) => Counted::Single { x, y, luma: luma.row(y)[x] },
        };
        Ok(select(&mut self.components, of, &self.spec, self.size, objects))
    }

    /// Writes the mask that was cleaned last, in the colours that it had before.
    pub fn cleaned(&self, mask: &mut Plane) {
        self.bits.give(mask, self.spec.colour);
    }

    /// Adds the parts of the background that do not reach the border of the picture, if that was asked for.
    fn fill_holes(&mut self) -> Result<()> {
        let Some(background) = &mut self.background else { return Ok(()) };
        background.invert(&self.bits);
        let size = self.size;
        let work = Work {
            level: self.level,
            size,
            connectivity: self.spec.connectivity.of_background(),
            bits: background,
            is_kept: true,
            memory: self.memory,
            lists: self.lists,
        };
        self.outside.label(&work, size)?;
        let (outside, per_row) = (&self.outside, size.width.div_ceil(64));
        let (background, strip) = (&*background, strip_height(self.spec.connectivity.of_background()));
        self.bits.bands_mut(outside.rows).enumerate().for_each(|(index, words)| {
            let band = &outside.bands[index];
            let (mut begin, first) = (0, index * outside.rows);
            for (at, (rows, &end)) in words.chunks_mut(strip * per_row).zip(&band.ends).enumerate() {
                for run in &band.runs[begin..end] {
                    if outside.tally(outside.component_of(index, run)).0 {
                        continue;
                    }
                    for (y, row) in rows.chunks_mut(per_row).enumerate() {
                        let hole = background.row(first + strip * at + y);
                        fill(row, hole, run.start as usize, run.end as usize);
                    }
                }
                begin = end;
            }
        });
        Ok(())
    }
}

/// Adds the pixels of `from` in the columns from `start` to before `end`.
fn fill(row: &mut [u64], from: &[u64], start: usize, end: usize) {
    for (at, word) in row.iter_mut().enumerate().take(end.div_ceil(64)).skip(start / 64) {
        let first = start.saturating_sub(64 * at);
        let last = (end - 64 * at).min(64);
        *word |= from[at] & (u64::MAX >> (64 - (last - first))) << first;
    }
}

/// A component as it was counted.
enum Counted<'a> {
    Sums(&'a Growing),
    Single { x: usize, y: usize, luma: u8 },
}

impl Measured for Counted<'_> {
    fn area(&self) -> usize {
        match self {
            Self::Sums(sums) => sums.shape().area(),
            Self::Single { .. } => 1,
        }
    }

    fn size(&self) -> Size {
        match self {
            Self::Sums(sums) => sums.shape().size(),
            Self::Single { .. } => Size::new(1, 1),
        }
    }

    #[inline]
    fn object(&self, picture: Size) -> Object {
        match *self {
            Self::Sums(sums) => sums.sums().object(picture),
            Self::Single { x, y, luma } => Sums::object_of_pixel(x, y, luma, picture),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::labelling::{bytes_of_component, bytes_of_single};
    use super::*;
    use crate::config::{Bounds, Cleaning, Connectivity, ObjectColour};
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
                ..ObjectSpec::default()
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
        let found = |is_white: fn(usize, usize) -> bool, limit: usize, threads: usize| {
            let picture = Padded::new(size, 160, |x, y| y < 40 && is_white(x, y), &mut Random(7));
            with_threads(threads, || {
                let mut finder =
                    ObjectFinder::new(&ObjectSpec::default(), size, Some(Bytes(limit as u64))).unwrap();
                let mut objects = Vec::new();
                finder.clean(picture.mask()).unwrap();
                finder.find(picture.luma(), &mut objects).map(|_| objects.len())
            })
        };
        let dots = |x: usize, y: usize| x.is_multiple_of(2) && y.is_multiple_of(2);
        let pairs = |x: usize, y: usize| !x.is_multiple_of(3) && y.is_multiple_of(2);
        let of_dots = 1600 * bytes_of_single::<Growing>(1);
        let of_pairs = 53 * 20 * bytes_of_component::<Growing>(1);
        for (is_white, count, bytes) in
            [(dots as fn(usize, usize) -> bool, 1600, of_dots), (pairs, 1060, of_pairs)]
        {
            for threads in [1, 8] {
                assert_eq!(found(is_white, bytes, threads).unwrap(), count, "{threads} threads");
                assert!(found(is_white, bytes - 1, threads).is_err(), "{threads} threads");
            }
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
