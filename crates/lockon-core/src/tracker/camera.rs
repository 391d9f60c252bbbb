//! The camera's motion from one frame to the next: the similarity (shift, rotation and scale) of everything
//! outside the targets' boxes.
//!
//! A few dozen blocks of a shrunken picture are found again by block matching (least sum of absolute
//! differences, from coarse to fine), as video encoders do it. The motion is the one that most blocks agree
//! on (M. Fischler and R. Bolles, "Random Sample Consensus", 1981), with the pairs in a fixed order. Sums are
//! integers, so every machine finds the same motion.

use super::workplaces::Threads;
use crate::frame::{Frame, Size};
use crate::simd::Level;
use crate::surface::Surface;

/// About so wide is the picture in which blocks are looked for.
const WIDTH: usize = 320;

/// Columns of a frame that are summed at a time: a whole row of 1080p, since a row in two parts takes a fifth
/// longer. No fewer than make a pixel of the shrunken picture.
const TILE: usize = 2048;

/// Pixels of a frame, and blocks, that a thread takes at a time.
const BAND: usize = 1 << 16;
const BLOCKS: usize = 5;

/// Side of a block, in pixels of the shrunken picture.
const BLOCK: usize = 16;

/// Places across and down from which blocks are taken, if they have texture.
const COLUMNS: usize = 10;
const ROWS: usize = 7;

/// How far a block may be from its place by the last motion: first in the picture at half of that size,
/// then from the place found there. Most cameras move as they did: only where too few blocks agree on a
/// motion near the last one, they are looked for as far away as they may be.
const NEAR_LAST: i64 = 3;
const COARSE: i64 = 7;
const FINE: i64 = 2;

/// The mean difference between neighbours, across and down, that a block must have: a block that looks alike
/// along a line is found anywhere on it.
const TEXTURE: u32 = 2;

/// A block agrees with a motion that takes it so near to where it was found, in pixels.
const NEAR: f64 = 1.0;

/// Blocks that must agree: their number, and their share of all.
const FEWEST: usize = 8;
const AGREED: f64 = 0.35;

/// More change of scale, and more turning, is no motion of a camera between two frames.
const MOST_SCALE: f64 = 0.15;
const MOST_TURN: f64 = 0.2;

/// The pixels of a block.
type Block = [[u8; BLOCK]; BLOCK];

/// Takes (x, y) to (a x - b y + `x`, b x + a y + `y`), in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Motion {
    a: f64,
    b: f64,
    x: f64,
    y: f64,
}

/// A place in the last frame and in this one.
type Pair = ((f64, f64), (f64, f64));

impl Motion {
    const NONE: Self = Self { a: 1.0, b: 0.0, x: 0.0, y: 0.0 };

    #[cfg(test)]
    pub(super) fn shift(x: f64, y: f64) -> Self {
        Self { x, y, ..Self::NONE }
    }

    /// The position in this frame of a place in the last one.
    pub(super) fn apply(self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.a * x - self.b * y + self.x, self.b * x + self.a * y + self.y)
    }

    /// The motion that takes everything back.
    pub(super) fn inverse(self) -> Self {
        let power = self.a * self.a + self.b * self.b;
        let (a, b) = (self.a / power, -self.b / power);
        Self { a, b, x: -(a * self.x - b * self.y), y: -(b * self.x + a * self.y) }
    }

    /// The motion with the least squared errors.
    pub(super) fn fit(pairs: &[Pair]) -> Option<Self> {
        let share = 1.0 / pairs.len() as f64;
        let (mut before, mut after) = ((0.0, 0.0), (0.0, 0.0));
        for ((x, y), (u, v)) in pairs {
            before = (before.0 + share * x, before.1 + share * y);
            after = (after.0 + share * u, after.1 + share * v);
        }
        let (mut power, mut along, mut across) = (0.0, 0.0, 0.0);
        for ((x, y), (u, v)) in pairs {
            let (x, y, u, v) = (x - before.0, y - before.1, u - after.0, v - after.1);
            power += x * x + y * y;
            along += x * u + y * v;
            across += x * v - y * u;
        }
        let (a, b) = (along / power, across / power);
        let is_sensible =
            power > 0.0 && ((a * a + b * b).sqrt() - 1.0).abs() <= MOST_SCALE && b.abs() <= MOST_TURN;
        let (x, y) = (a * before.0 - b * before.1, b * before.0 + a * before.1);
        is_sensible.then_some(Self { a, b, x: after.0 - x, y: after.1 - y })
    }

    fn agrees(self, (before, after): &Pair) -> bool {
        let (x, y) = self.apply(*before);
        (x - after.0) * (x - after.0) + (y - after.1) * (y - after.1) <= NEAR * NEAR
    }
}

/// A picture of luma, shrunken by a whole factor.
#[derive(Default)]
pub(super) struct Small {
    pub(super) width: usize,
    pub(super) height: usize,
    data: Vec<u8>,
}

impl Small {
    #[cfg(test)]
    pub(super) fn new(width: usize, height: usize, data: Vec<u8>) -> Self {
        Self { width, height, data }
    }

    /// Means of squares of `factor` pixels; incomplete squares are left out.
    fn shrink<'a>(
        &mut self,
        (level, threads): (Level, &Threads),
        row: impl Fn(usize) -> &'a [u8] + Sync,
        (width, height): (usize, usize),
        factor: usize,
    ) {
        (self.width, self.height) = (width / factor, height / factor);
        self.data.resize(self.width * self.height, 0);
        let pixels = (factor * factor) as u64;
        // Exact, since no sum is 256 times `pixels` or more, and no factor more than 102: frames are at most
        // 32768 pixels wide.
        let reciprocal = (1 << 40) / pixels + 1;
        let mean = |sum: u32| (((u64::from(sum) + pixels / 2) * reciprocal) >> 40) as u8;
        let length = self.width.max(1);
        let at_once = (BAND / (length * factor * factor)).max(1);
        threads.rows(&mut self.data, (length, at_once), |y, small| {
            level.run(
                #[inline(always)]
                || {
                    let squares = TILE / factor;
                    for (index, small) in small.chunks_mut(squares).enumerate() {
                        let mut columns = [0_u16; TILE];
                        let columns = &mut columns[..small.len() * factor];
                        for line in y * factor..(y + 1) * factor {
                            let pixels = &row(line)[index * squares * factor..][..columns.len()];
                            for (sum, &pixel) in columns.iter_mut().zip(pixels) {
                                *sum += u16::from(pixel);
                            }
                        }
                        // Even factors, as most are, are halved first: that needs vectors only.
                        let (mut sums, is_even) = ([0_u32; TILE], factor.is_multiple_of(2));
                        if is_even {
                            for (sum, &[a, b]) in sums.iter_mut().zip(columns.as_chunks().0) {
                                *sum = u32::from(a) + u32::from(b);
                            }
                        } else {
                            for (sum, &column) in sums.iter_mut().zip(&*columns) {
                                *sum = u32::from(column);
                            }
                        }
                        let count = if is_even { factor / 2 } else { factor };
                        match count {
                            1 => add::<1>(&sums, small, mean),
                            2 => add::<2>(&sums, small, mean),
                            3 => add::<3>(&sums, small, mean),
                            _ => {
                                for (small, sums) in small.iter_mut().zip(sums.chunks_exact(count)) {
                                    *small = mean(sums.iter().sum());
                                }
                            }
                        }
                    }
                },
            );
        });
    }

    /// As above for a picture on a device, with the same bytes as result.
    fn shrink_on_device(&mut self, surface: &dyn Surface, size: Size, factor: usize) {
        (self.width, self.height) = (size.width / factor, size.height / factor);
        self.data.resize(self.width * self.height, 0);
        surface.shrink(factor, &mut self.data);
    }

    pub(super) fn row(&self, y: usize) -> &[u8] {
        &self.data[y * self.width..][..self.width]
    }

    fn block_row(&self, (x, y): (usize, usize), line: usize) -> &[u8; BLOCK] {
        self.row(y + line)[x..].first_chunk().expect("a block lies in the picture")
    }

    /// The nearest place at which a block lies in the picture.
    fn inside(&self, (x, y): (i64, i64)) -> (i64, i64) {
        (x.clamp(0, (self.width - BLOCK) as i64), y.clamp(0, (self.height - BLOCK) as i64))
    }

    fn has_texture(&self, (x, y): (usize, usize)) -> bool {
        let (mut across, mut down) = (0, 0);
        for line in 0..BLOCK - 1 {
            let (row, next) = (self.block_row((x, y), line), self.block_row((x, y), line + 1));
            for i in 0..BLOCK - 1 {
                across += u32::from(row[i].abs_diff(row[i + 1]));
                down += u32::from(row[i].abs_diff(next[i]));
            }
        }
        across.min(down) >= TEXTURE * ((BLOCK - 1) * (BLOCK - 1)) as u32
    }

    fn block(&self, place: (usize, usize)) -> Block {
        std::array::from_fn(|line| *self.block_row(place, line))
    }

    /// The sum of absolute differences of a block and the one at a place of this picture; something above
    /// `least` if it is no less than that.
    #[inline(always)]
    fn difference(&self, block: &Block, (x, y): (usize, usize), least: u32) -> u32 {
        let rows = &self.data[y * self.width + x..][..(BLOCK - 1) * self.width + BLOCK];
        let mut sum = 0;
        for (half, lines) in block.as_chunks::<{ BLOCK / 2 }>().0.iter().enumerate() {
            for (line, own) in lines.iter().enumerate() {
                let other = rows[(half * BLOCK / 2 + line) * self.width..].first_chunk::<BLOCK>();
                // In this form it is one instruction on x86-64, which sums 16 differences.
                let pixels = own.iter().zip(other.expect("a block lies in the picture"));
                sum += pixels.map(|(a, b)| u32::from(a.abs_diff(*b))).sum::<u32>();
            }
            if sum >= least {
                return u32::MAX;
            }
        }
        sum
    }

    /// The place of a block in this picture, within `reach` of a place; the first of equal ones.
    #[inline(always)]
    fn find(&self, block: &Block, (x, y): (i64, i64), reach: i64) -> (i64, i64) {
        let (mut best, mut least) = ((x, y), u32::MAX);
        let (first, last) = (self.inside((x - reach, y - reach)), self.inside((x + reach, y + reach)));
        for y in first.1..=last.1 {
            for x in first.0..=last.0 {
                let found = self.difference(block, (x as usize, y as usize), least);
                if found < least {
                    (best, least) = ((x, y), found);
                }
            }
        }
        best
    }

    /// The place between pixels: to both sides of it the sums rise about alike.
    #[inline(always)]
    fn refine(&self, block: &Block, (x, y): (i64, i64)) -> (f64, f64) {
        let at = |x: i64, y: i64| {
            let is_inside = self.inside((x, y)) == (x, y);
            is_inside.then(|| f64::from(self.difference(block, (x as usize, y as usize), u32::MAX)))
        };
        let here = at(x, y).unwrap_or(0.0);
        let between = |before: Option<f64>, after: Option<f64>| {
            let (Some(before), Some(after)) = (before, after) else { return 0.0 };
            let most = before.max(after) - here;
            if most > 0.0 { (0.5 * (before - after) / most).clamp(-0.5, 0.5) } else { 0.0 }
        };
        let dx = between(at(x - 1, y), at(x + 1, y));
        (x as f64 + dx, y as f64 + between(at(x, y - 1), at(x, y + 1)))
    }
}

/// The mean of each `COUNT` sums.
#[inline(always)]
fn add<const COUNT: usize>(sums: &[u32], small: &mut [u8], mean: impl Fn(u32) -> u8) {
    for (small, sums) in small.iter_mut().zip(sums.as_chunks::<COUNT>().0) {
        *small = mean(sums.iter().sum());
    }
}

/// Follows the camera; keeps its room.
pub(super) struct Camera {
    level: Level,
    /// The shrunken picture and its half: of the frame before, and of this one.
    before: [Small; 2],
    now: [Small; 2],
    /// For each block where it was and is, if it has texture; and the same of those that have.
    found: Vec<Option<Pair>>,
    pairs: Vec<Pair>,
    agreed: Vec<Pair>,
    /// In pixels of the shrunken picture, if it is known, and pixels of the frame to one of these.
    last: Option<Motion>,
    factor: usize,
}

impl Camera {
    pub(super) fn new() -> Self {
        Self {
            level: Level::best(),
            before: Default::default(),
            now: Default::default(),
            found: vec![None; COLUMNS * ROWS],
            pairs: Vec::new(),
            agreed: Vec::new(),
            last: None,
            factor: 1,
        }
    }

    /// The motion from the frame before to this one, if enough can be seen of it. `boxes`, as `[x, y, w, h]`,
    /// move by themselves.
    pub(super) fn step(&mut self, frame: &Frame, boxes: &[[f64; 4]], threads: &Threads) -> Option<Motion> {
        let size = frame.format.size;
        let factor = ((size.width + WIDTH / 2) / WIDTH).max(1);
        self.factor = factor;
        std::mem::swap(&mut self.before, &mut self.now);
        let Self { level, before, now, .. } = self;
        let [small, half] = now;
        if let Some(surface) = frame.picture.surface() {
            small.shrink_on_device(surface, size, factor);
        } else {
            let luma = frame.luma();
            small.shrink((*level, threads), |y| luma.row(y), (size.width, size.height), factor);
        }
        half.shrink((*level, threads), |y| small.row(y), (small.width, small.height), 2);
        let has_room = half.width >= BLOCK && half.height >= BLOCK;
        let is_next = (before[0].width, before[0].height) == (small.width, small.height);
        let last = self.last.take();
        if has_room && is_next {
            let reaches = [last.map(|_| NEAR_LAST), Some(COARSE)];
            self.last = reaches.into_iter().flatten().find_map(|reach| {
                self.match_blocks(boxes, factor as f64, (last.unwrap_or(Motion::NONE), reach), threads);
                self.agree(last.unwrap_or(Motion::NONE))
            });
        }
        let factor = factor as f64;
        self.last.map(|motion| Motion { x: motion.x * factor, y: motion.y * factor, ..motion })
    }

    /// The shrunken pictures of the frame before and of this one, and the motion between them in their
    /// pixels, if it is known; and pixels of the frame to one of them.
    pub(super) fn pictures(&self) -> Option<(&Small, &Small, Motion, usize)> {
        Some((&self.before[0], &self.now[0], self.last?, self.factor))
    }

    /// The shrunken picture of this frame, and pixels of the frame to one of it.
    pub(super) fn picture(&self) -> (&Small, usize) {
        (&self.now[0], self.factor)
    }

    /// Finds the blocks again, within `reach` of where the last motion takes them.
    fn match_blocks(
        &mut self,
        boxes: &[[f64; 4]],
        factor: f64,
        (last, reach): (Motion, i64),
        threads: &Threads,
    ) {
        let Self { level, before: [small, half], now: [small_now, half_now], found, pairs, .. } = self;
        let place = |index: usize, count: usize, length: usize| (length - BLOCK) * index / (count - 1);
        threads.rows(found, (1, BLOCKS), |index, found| {
            found[0] = None;
            let x = place(index % COLUMNS, COLUMNS, small.width);
            let y = place(index / COLUMNS, ROWS, small.height);
            let (left, top, side) = (x as f64 * factor, y as f64 * factor, BLOCK as f64 * factor);
            let is_taken =
                |&[x, y, w, h]: &[f64; 4]| left < x + w && x < left + side && top < y + h && y < top + side;
            if boxes.iter().any(is_taken) || !small.has_texture((x, y)) {
                return;
            }
            let middle = |x: f64, y: f64| (x + 0.5 * BLOCK as f64, y + 0.5 * BLOCK as f64);
            let from = middle(x as f64, y as f64);
            let expected = last.apply(from);
            // A block of the half picture shows twice as much, about the same middle.
            let quarter = BLOCK as i64 / 4;
            let around = half.inside((x as i64 / 2 - quarter, y as i64 / 2 - quarter));
            let moved = |to: f64, from: f64| libm::round((to - from) / 2.0) as i64;
            let begin = (around.0 + moved(expected.0, from.0), around.1 + moved(expected.1, from.1));
            let to = level.run(
                #[inline(always)]
                || {
                    let block = half.block((around.0 as usize, around.1 as usize));
                    let coarse = half_now.find(&block, begin, reach);
                    let begin = (x as i64 + 2 * (coarse.0 - around.0), y as i64 + 2 * (coarse.1 - around.1));
                    let block = small.block((x, y));
                    let found = small_now.find(&block, begin, FINE);
                    small_now.refine(&block, small_now.inside(found))
                },
            );
            found[0] = Some((from, middle(to.0, to.1)));
        });
        pairs.clear();
        pairs.extend(found.iter().flatten());
    }

    /// The motion that most blocks agree on.
    fn agree(&mut self, last: Motion) -> Option<Motion> {
        let Self { pairs, agreed, .. } = self;
        let count = pairs.len();
        let (mut best, mut most) = (Motion::NONE, 0);
        let mut consider = |motion: Motion| {
            // Given up as soon as too many disagree.
            let mut missing = 0;
            let is_better = most < count
                && pairs.iter().all(|pair| {
                    missing += usize::from(!motion.agrees(pair));
                    missing < count - most
                });
            if is_better {
                (best, most) = (motion, count - missing);
            }
        };
        consider(last);
        consider(Motion::NONE);
        // Pairs far from each other determine scale and direction best.
        for first in 0..count {
            for hop in [count / 2, count / 3, count / 5 + 1] {
                if let Some(motion) = Motion::fit(&[pairs[first], pairs[(first + hop) % count]]) {
                    consider(motion);
                }
            }
        }
        for _ in 0..2 {
            agreed.clear();
            agreed.extend(pairs.iter().filter(|pair| best.agrees(pair)));
            if agreed.len() < FEWEST || (agreed.len() as f64) < AGREED * count as f64 {
                return None;
            }
            best = Motion::fit(agreed)?;
        }
        Some(best)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::super::workplaces::Workplaces;
    use super::*;
    use crate::frame::{Circumstances, FrameMeta, PixelFormat, Plane, Size, VideoFormat};

    const SIZE: Size = Size { width: 641, height: 363 };

    /// Smooth noise without an end, at a place.
    fn ground(x: f64, y: f64) -> f64 {
        let corner = |x: i64, y: i64| ((x * 7919 + y * 104_729 + x * y * 31).rem_euclid(251)) as f64;
        let (x, y) = (x / 9.0, y / 9.0);
        let (left, top) = (x.floor(), y.floor());
        let (u, v) = (x - left, y - top);
        let (left, top) = (left as i64, top as i64);
        let row = |y: i64| (1.0 - u) * corner(left, y) + u * corner(left + 1, y);
        (1.0 - v) * row(top) + v * row(top + 1)
    }

    /// A frame in which every place shows the ground at `from`.
    fn frame(from: impl Fn(f64, f64) -> (f64, f64)) -> Frame {
        let pixel = |i: usize| {
            let (x, y) = from((i % SIZE.width) as f64, (i / SIZE.width) as f64);
            ground(x, y) as u8
        };
        Frame {
            meta: FrameMeta { index: 0, pts_ns: None, duration_ns: None, arrived: Instant::now() },
            circumstances: Circumstances::default(),
            format: Arc::new(VideoFormat {
                size: SIZE,
                pixels: PixelFormat::GRAY8,
                frame_rate: (25, 1),
                pixel_aspect: (1, 1),
                colorimetry: None,
            }),
            picture: Arc::new(Plane::from_vec((0..SIZE.area()).map(pixel).collect(), SIZE)),
        }
    }

    fn motion(frames: &[Frame; 2], boxes: &[[f64; 4]]) -> Option<Motion> {
        let (mut camera, alone) = (Camera::new(), Threads::new(1));
        assert_eq!(camera.step(&frames[0], boxes, &alone), None, "there is no frame before");
        camera.step(&frames[1], boxes, &alone)
    }

    fn assert_near(motion: Option<Motion>, place: (f64, f64), (x, y): (f64, f64)) {
        let found = motion.expect("the ground has texture").apply(place);
        assert!((found.0 - x).abs() < 0.5 && (found.1 - y).abs() < 0.5, "{found:?} instead of {x}, {y}");
    }

    #[test]
    fn a_picture_shrinks_to_the_means_of_its_squares_on_any_number_of_threads() {
        for (factor, width, height) in [
            (1, 321, 61),
            (2, 2 * TILE + 7, 9),
            (3, 961, 31),
            (4, 1283, 723),
            (6, 2311, 67),
            (7, 2243, 22),
            (24, 7681, 53),
        ] {
            let pixel =
                |x: usize, y: usize| if y < factor { 255 } else { (x * x * 7 + x * y * 31 + y * 101) as u8 };
            let data: Vec<u8> = (0..width * height).map(|i| pixel(i % width, i / width)).collect();
            let mean = |i: usize| {
                let (left, top) = (i % (width / factor) * factor, i / (width / factor) * factor);
                let square = (0..factor * factor).map(|i| pixel(left + i % factor, top + i / factor));
                let pixels = (factor * factor) as u32;
                ((square.map(u32::from).sum::<u32>() + pixels / 2) / pixels) as u8
            };
            let means: Vec<u8> = (0..(width / factor) * (height / factor)).map(mean).collect();
            for threads in [1, 3] {
                let mut small = Small { data: vec![9; 5], ..Small::default() };
                Workplaces::new(threads).run(true, |workplaces| {
                    let row = |y: usize| &data[y * width..][..width];
                    small.shrink((Level::best(), &workplaces.threads), row, (width, height), factor);
                });
                assert_eq!((small.width, small.height), (width / factor, height / factor));
                assert!(small.data == means, "factor {factor}, {threads} threads");
            }
        }
    }

    #[test]
    fn a_shift_is_found() {
        let motion = motion(&[frame(|x, y| (x, y)), frame(|x, y| (x - 13.0, y + 6.0))], &[]);
        assert_near(motion, (100.0, 300.0), (113.0, 294.0));
        assert_near(motion, (600.0, 20.0), (613.0, 14.0));
    }

    #[test]
    fn the_inverse_takes_every_place_back() {
        let motion = Motion { a: 1.1, b: -0.2, x: 17.0, y: -4.0 };
        let (x, y) = motion.inverse().apply(motion.apply((31.0, -8.0)));
        assert!((x - 31.0).abs() < 1e-9 && (y + 8.0).abs() < 1e-9, "{x}, {y}");
    }

    #[test]
    fn scale_and_rotation_are_found() {
        let (cos, sin) = (1.02 * libm::cos(0.02), 1.02 * libm::sin(0.02));
        let turned = |x: f64, y: f64| (cos * x - sin * y, sin * x + cos * y);
        // The place (x, y) of the second frame shows the place `turned` of the first.
        let motion = motion(&[frame(|x, y| (x, y)), frame(turned)], &[]).expect("the ground has texture");
        for place in [(40.0, 40.0), (600.0, 40.0), (320.0, 330.0)] {
            assert_near(Some(motion), turned(place.0, place.1), place);
        }
    }

    #[test]
    fn what_moves_by_itself_in_a_box_or_over_a_quarter_of_the_picture_does_not_matter() {
        let moved = |x: f64, y: f64| if x < 320.0 && y < 180.0 { (x + 9.0, y) } else { (x - 4.0, y) };
        assert_near(motion(&[frame(|x, y| (x, y)), frame(moved)], &[]), (400.0, 300.0), (404.0, 300.0));
        let moved = |x: f64, _: f64| x < 450.0;
        let shown = |x: f64, y: f64| if moved(x, y) { (x + 9.0, y) } else { (x - 4.0, y) };
        let found = motion(&[frame(|x, y| (x, y)), frame(shown)], &[[0.0, 0.0, 460.0, 363.0]]);
        assert_near(found, (500.0, 300.0), (504.0, 300.0));
    }

    #[test]
    fn nothing_is_said_of_a_flat_or_a_changed_picture() {
        assert_eq!(motion(&[frame(|_, _| (0.0, 0.0)), frame(|_, _| (0.0, 0.0))], &[]), None);
        assert_eq!(motion(&[frame(|x, y| (x, y)), frame(|x, y| (7.0 * y, 5000.0 + x))], &[]), None);
    }
}
