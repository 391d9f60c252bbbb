//! The appearance of a box, whatever its size and shape, and how much two looks are alike.

use super::filter::sum;
use super::hog::{CELL, HOG, Hog, LANES};
use super::outlines::{self, Sketch};
use super::sample::{Sampler, Window};
use crate::frame::Frame;
use crate::simd::Level;

/// Cells on a side of a look: the box, whatever its shape, as 32x32 pixels.
const CELLS: usize = 8;
pub(super) const LENGTH: usize = CELLS * CELLS * HOG;

/// Boxes that are looked at together: their pixels stand beside each other.
pub(super) const TOGETHER: usize = LANES / CELLS;

/// Looks that are kept.
pub(super) const KEPT: usize = 2;

/// The appearance of a box: the features of its pixels, resampled to a square.
pub(super) type Look = Vec<f32>;

/// Boxes that were sampled before their looks are wanted, and their pixels. A device samples many in one
/// request.
#[derive(Default)]
pub(super) struct Ahead {
    pub(super) boxes: Vec<Window>,
    pub(super) pixels: Vec<u8>,
}

/// Samples of a box.
const BOX: usize = SIDE * SIDE;
const SIDE: usize = CELLS * CELL;

impl Ahead {
    /// Samples its boxes.
    pub(super) fn sample(&mut self, frame: &Frame, sampler: &mut Sampler) {
        self.pixels.resize(self.boxes.len() * BOX, 0);
        if !self.boxes.is_empty() {
            sampler.squares(frame, &self.boxes, (SIDE, 1), &mut self.pixels);
        }
    }

    /// Puts the pixels of boxes beside each other, as [`Sampler::squares`] does; false if one is missing.
    fn place(&self, boxes: &[Window], pixels: &mut [u8]) -> bool {
        boxes.iter().enumerate().all(|(index, wanted)| {
            let Some(at) = self.boxes.iter().position(|own| own == wanted) else { return false };
            let own = self.pixels[at * BOX..][..BOX].as_chunks::<CELLS>().0;
            let rows = pixels.as_chunks_mut::<CELLS>().0.chunks_exact_mut(TOGETHER);
            for (row, own) in rows.zip(own) {
                row[index] = *own;
            }
            true
        })
    }
}

/// Room to look at boxes in; one for each thread.
pub(super) struct Looker {
    sampler: Sampler,
    hog: Hog,
    /// The pixels of boxes, each [`TOGETHER`] of them beside each other.
    pixels: Vec<u8>,
    looks: Vec<Look>,
    kept: [Look; KEPT],
    /// Boxes of this frame that are already sampled.
    pub(super) ahead: Ahead,
}

impl Looker {
    pub(super) fn new() -> Self {
        let look = || vec![0.0; LENGTH];
        Self {
            sampler: Sampler::new(),
            hog: Hog::new(),
            pixels: vec![0; CELLS * CELL * LANES * CELL],
            looks: vec![look(); TOGETHER],
            kept: std::array::from_fn(|_| look()),
            ahead: Ahead::default(),
        }
    }

    /// The look of the box.
    pub(super) fn look(&mut self, frame: &Frame, window: Window) -> &Look {
        self.see(frame, &[window]);
        &self.looks[0]
    }

    /// The looks of up to [`TOGETHER`] boxes.
    pub(super) fn look_at(&mut self, frame: &Frame, windows: &[Window]) -> &[Look] {
        self.see(frame, windows);
        &self.looks[..windows.len()]
    }

    /// Keeps one of the looks that were computed last, under a number less than [`KEPT`].
    pub(super) fn keep(&mut self, index: usize, number: usize) {
        self.kept[number].clone_from(&self.looks[index]);
    }

    /// The look that was kept last under a number.
    pub(super) fn kept(&self, number: usize) -> &Look {
        &self.kept[number]
    }

    /// The look that was computed last, or the first of several.
    pub(super) fn looked(&self) -> &Look {
        &self.looks[0]
    }

    /// The pixels of the look that was computed last, or the first of several.
    pub(super) fn sketch(&self) -> Sketch {
        const _: () = assert!(SIDE == outlines::SIDE);
        // In a row stand the first pixels of all cells of the boxes beside each other, then the second ones.
        let pixel = |x: usize, y: usize| self.pixels[y * LANES * CELL + x % CELL * LANES + x / CELL];
        Sketch::new((0..SIDE * SIDE).map(|index| pixel(index % SIDE, index / SIDE)))
    }

    /// Samples boxes of a picture on a device all at once, since each request takes its time.
    pub(super) fn sample_ahead(&mut self, frame: &Frame, boxes: impl Iterator<Item = Window>) {
        let Self { sampler, ahead, .. } = self;
        ahead.boxes.clear();
        if frame.picture.surface().is_some() {
            ahead.boxes.extend(boxes);
            ahead.sample(frame, sampler);
        }
    }

    /// Forgets the boxes that were sampled ahead, before the next frame comes.
    pub(super) fn forget_ahead(&mut self) {
        self.ahead.boxes.clear();
    }

    fn see(&mut self, frame: &Frame, windows: &[Window]) {
        let Self { sampler, hog, pixels, looks, ahead, .. } = self;
        if !ahead.place(windows, pixels) {
            sampler.squares(frame, windows, (SIDE, TOGETHER), pixels);
        }
        let looks = &mut looks[..windows.len()];
        hog.run::<CELLS>(
            pixels,
            #[inline(always)]
            |y, row| {
                for (square, look) in looks.iter_mut().enumerate() {
                    let cells = look[y * HOG * CELLS..][..HOG * CELLS].as_chunks_mut::<CELLS>().0;
                    for (cells, lanes) in cells.iter_mut().zip(row) {
                        *cells = lanes.as_chunks().0[square];
                    }
                }
            },
        );
    }
}

/// Lanes of sums over looks, and how many numbers are taken at a time, so that the sums stay in registers
/// meanwhile.
const WIDE: usize = 32;
const AT_ONCE: usize = 8 * WIDE;
const _: () = assert!(LENGTH.is_multiple_of(AT_ONCE));

/// NCC of two looks, in [-1, 1]; 0 if one is flat.
pub(super) fn similarity(a: &Look, b: &Look) -> f64 {
    let sums = Level::best().run(
        #[inline(always)]
        || {
            let zero = [0.0; WIDE];
            let (mut aa, mut bb, mut ab, mut sa, mut sb) = (zero, zero, zero, zero, zero);
            for (a, b) in a.as_chunks::<AT_ONCE>().0.iter().zip(b.as_chunks::<AT_ONCE>().0) {
                for lane in 0..WIDE {
                    let mut sums = [aa[lane], bb[lane], ab[lane], sa[lane], sb[lane]];
                    for at in (lane..AT_ONCE).step_by(WIDE) {
                        let (a, b) = (a[at], b[at]);
                        for (sum, value) in sums.iter_mut().zip([a * a, b * b, a * b, a, b]) {
                            *sum += value;
                        }
                    }
                    [aa[lane], bb[lane], ab[lane], sa[lane], sb[lane]] = sums;
                }
            }
            [sum(&aa), sum(&bb), sum(&ab), sum(&sa), sum(&sb)]
        },
    );
    let [aa, bb, ab, sa, sb] = sums.map(f64::from);
    let n = a.len() as f64;
    let spread = (aa - sa * sa / n) * (bb - sb * sb / n);
    if spread > 0.0 { ((ab - sa * sb / n) / spread.sqrt()).clamp(-1.0, 1.0) } else { 0.0 }
}
