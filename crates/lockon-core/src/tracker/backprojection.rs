//! Finds places in a frame that have the colours of a target, at any size.
//!
//! After M. Swain and D. Ballard, "Color Indexing", 1991 (histogram backprojection): each sample of the frame
//! counts by how much more of its colour is in the target than in the whole frame. A lone red car on grey
//! asphalt is found at once, however it is turned.

use super::colour::Colours;
use super::outlines::{Place, Scratch, take_best};
use super::sample::{Patch, Sampler, Window};
use crate::frame::Frame;
use crate::frame::correlator::BINS;
use crate::simd::Level;

/// Samples on each side of the frame, whatever its shape.
const SIDE: usize = 128;
/// Rows and columns of sums.
const CORNERS: usize = SIDE + 1;

/// Samples or rows that are taken in together.
const AT_ONCE: usize = 4;
const _: () = assert!(SIDE.is_multiple_of(AT_ONCE) && SIDE * SIDE <= u16::MAX as usize);

/// How often a colour of the frame counts against the target's.
const FRAME_WEIGHT: f32 = 3.0;
/// Added to both, so that a colour that is rare in both decides nothing.
const RARE: f32 = 0.0005;
/// The share from which on a colour speaks for the target.
const NEUTRAL: f32 = 0.35;

/// The colours of a frame; keeps its memory.
pub(super) struct FrameColours {
    sampler: Sampler,
    patch: Patch,
    /// With chroma, and of luma alone.
    coloured: Histogram,
    grey: Histogram,
    /// Width and height of the frame.
    size: (f64, f64),
}

/// The bin of each sample, and the share of each bin.
struct Histogram {
    /// Of nothing: it only says what a bin is.
    colours: Colours,
    bins: Vec<u16>,
    shares: Vec<f32>,
}

impl Histogram {
    fn new(has_chroma: bool) -> Self {
        Self { colours: Colours::new(has_chroma), bins: Vec::new(), shares: vec![0.0; BINS] }
    }

    fn count(&mut self, patch: &Patch) {
        self.colours.bins(patch, &mut self.bins);
        // Samples beside each other are often in one bin, and a count would wait for the one before.
        let mut counts = [[0_u16; BINS]; AT_ONCE];
        for bins in self.bins.as_chunks::<AT_ONCE>().0 {
            for (counts, &bin) in counts.iter_mut().zip(bins) {
                counts[usize::from(bin)] += 1;
            }
        }
        for (bin, share) in self.shares.iter_mut().enumerate() {
            let count: u16 = counts.iter().map(|counts| counts[bin]).sum();
            *share = f32::from(count) / (SIDE * SIDE) as f32;
        }
    }
}

impl FrameColours {
    pub(super) fn new() -> Self {
        Self {
            sampler: Sampler::new(),
            patch: Patch::new(2 * SIDE),
            coloured: Histogram::new(true),
            grey: Histogram::new(false),
            size: (0.0, 0.0),
        }
    }

    /// Takes in a frame, for targets with chroma, without, or both.
    pub(super) fn see(&mut self, frame: &Frame, [coloured, grey]: [bool; 2]) {
        let (w, h) = (frame.format.size.width as f64, frame.format.size.height as f64);
        self.size = (w, h);
        let whole = Window { x: w / 2.0, y: h / 2.0, w, h, angle: 0.0 };
        self.sampler.window(frame, whole, true, &mut self.patch);
        if coloured {
            self.coloured.count(&self.patch);
        }
        if grey {
            self.grey.count(&self.patch);
        }
    }

    /// For each corner of samples, the sum of what all samples above and to the left of it say.
    pub(super) fn project(&self, colours: &Colours, sums: &mut Vec<f32>) {
        let Histogram { bins, shares, .. } = if colours.has_chroma { &self.coloured } else { &self.grey };
        let mut of_bins = [0.0; BINS];
        let both = colours.target().iter().zip(shares);
        for (said, (target, frame)) in of_bins.iter_mut().zip(both) {
            *said = (target + RARE) / (target + FRAME_WEIGHT * frame + 2.0 * RARE) - NEUTRAL;
        }
        sums.clear();
        sums.resize(CORNERS * CORNERS, 0.0);
        for (first, rows) in bins.as_chunks::<SIDE>().0.as_chunks::<AT_ONCE>().0.iter().enumerate() {
            // Each addition waits for the one before in its row.
            let (mut sum, mut of_rows) = ([0.0; AT_ONCE], [[0.0; SIDE]; AT_ONCE]);
            for x in 0..SIDE {
                for row in 0..AT_ONCE {
                    sum[row] += of_bins[usize::from(rows[row][x])];
                    of_rows[row][x] = sum[row];
                }
            }
            for (row, of_row) in of_rows.iter().enumerate() {
                let y = first * AT_ONCE + row;
                let (above, below) = sums[y * CORNERS..][..2 * CORNERS].split_at_mut(CORNERS);
                for ((below, above), of_row) in below[1..].iter_mut().zip(&above[1..]).zip(of_row) {
                    *below = above + of_row;
                }
            }
        }
    }

    /// Adds the best places for boxes of `w` x `h` pixels, up to so many, no two of which are within half of
    /// it.
    pub(super) fn find(
        &self,
        sums: &[f32],
        (w, h): (f64, f64),
        count: usize,
        Scratch { best, .. }: &mut Scratch,
        places: &mut Vec<Place>,
    ) {
        let (x_unit, y_unit) = (self.size.0 / SIDE as f64, self.size.1 / SIDE as f64);
        let side = |length: f64| (libm::round(length) as usize).max(1);
        let (width, height) = (side(w / x_unit), side(h / y_unit));
        if width >= SIDE || height >= SIDE {
            return;
        }
        let (columns, rows) = (CORNERS - width, CORNERS - height);
        let (across, down) = ((width / 2).max(1), (height / 2).max(1));
        // The best of each block that is half as wide and high as the box.
        best.clear();
        Level::best().run(
            #[inline(always)]
            || {
                let (mut top, mut at) = ([f32::MIN; SIDE], [0_u32; SIDE]);
                for y in 0..rows {
                    let (above, below) =
                        (&sums[y * CORNERS..][..CORNERS], &sums[(y + height) * CORNERS..][..CORNERS]);
                    let corners = above.iter().zip(&above[width..]).zip(below.iter().zip(&below[width..]));
                    for ((top, at), ((a, b), (c, d))) in top.iter_mut().zip(&mut at).zip(corners) {
                        let sum = d - c - b + a;
                        let is_more = sum > *top;
                        *top = if is_more { sum } else { *top };
                        *at = if is_more { y as u32 } else { *at };
                    }
                    if y % down == down - 1 || y + 1 == rows {
                        for first in (0..columns).step_by(across) {
                            let block = first..(first + across).min(columns);
                            let x = block.fold(first, |best, x| if top[x] > top[best] { x } else { best });
                            if top[x] > 0.0 {
                                best.push((top[x], at[x] as usize, x));
                            }
                        }
                        top = [f32::MIN; SIDE];
                    }
                }
            },
        );
        // A larger box has a larger sum, also of what is not the target.
        let share = 1.0 / ((width * height) as f32).sqrt();
        let middle = |place: usize, length: usize| place as f64 + length as f64 / 2.0;
        places.extend(take_best(best, count, (across, down)).map(|(sum, y, x)| Place {
            score: f64::from(sum * share),
            x: middle(x, width) * x_unit,
            y: middle(y, height) * y_unit,
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;
    use crate::frame::{
        Circumstances, FrameMeta, Picture, PixelFormat, Plane, PlaneRef, Rect, Size, VideoFormat,
    };

    const SIZE: Size = Size { width: 402, height: 226 };

    struct Planes(Vec<Plane>);

    impl Picture for Planes {
        fn plane(&self, index: usize) -> PlaneRef<'_> {
            self.0[index].as_ref()
        }
    }

    /// A grey frame with a box of one colour.
    fn frame(rect: Rect, (u, v): (u8, u8)) -> Frame {
        let pixels = PixelFormat::from_name("I420").unwrap();
        let plane = |index: usize, of_box: u8, around: u8| {
            let (size, shift) = (pixels.plane_size(index, SIZE), usize::from(index > 0));
            let value = |i: usize| {
                let (x, y) = ((i % size.width) << shift, (i / size.width) << shift);
                let is_inside =
                    (rect.x..rect.x + rect.w).contains(&x) && (rect.y..rect.y + rect.h).contains(&y);
                if is_inside { of_box } else { around + (i % 7) as u8 }
            };
            Plane::from_vec((0..size.area()).map(value).collect(), size)
        };
        let planes = vec![plane(0, 100, 90), plane(1, u, 125), plane(2, v, 125)];
        Frame {
            meta: FrameMeta { index: 0, pts_ns: None, duration_ns: None, arrived: Instant::now() },
            format: Arc::new(VideoFormat {
                size: SIZE,
                pixels,
                frame_rate: (25, 1),
                pixel_aspect: (1, 1),
                colorimetry: None,
            }),
            picture: Arc::new(Planes(planes)),
            circumstances: Circumstances::default(),
        }
    }

    #[test]
    fn a_red_box_on_grey_is_found_at_any_size() {
        let mut colours = Colours::new(true);
        let mut seen = FrameColours::new();
        seen.see(&frame(Rect { x: 100, y: 60, w: 60, h: 40 }, (110, 190)), [true, false]);
        colours.learn(&seen.coloured.bins, SIDE, (-23.0, -19.0), (18.0, 21.0), 1.0);
        for (w, h) in [(30, 20), (60, 40), (120, 80)] {
            let rect = Rect { x: 230, y: 110, w, h };
            seen.see(&frame(rect, (110, 190)), [true, false]);
            let (mut sums, mut places) = (vec![7.0; 3], Vec::new());
            seen.project(&colours, &mut sums);
            seen.find(&sums, (w as f64, h as f64), 2, &mut Scratch::default(), &mut places);
            let Place { x, y, .. } = places[0];
            let (right, down) = (230.0 + w as f64 / 2.0, 110.0 + h as f64 / 2.0);
            assert!((x - right).abs() < 6.0 && (y - down).abs() < 6.0, "{w} x {h}: {x}, {y}");
            let others = places[1..].iter().all(|place| place.score < 0.1 * places[0].score);
            assert!(others, "nothing else is red: {places:?}");
        }
        seen.see(&frame(Rect { x: 0, y: 0, w: 1, h: 1 }, (128, 128)), [true, false]);
        let (mut sums, mut places) = (Vec::new(), Vec::new());
        seen.project(&colours, &mut sums);
        seen.find(&sums, (60.0, 40.0), 2, &mut Scratch::default(), &mut places);
        assert!(places.is_empty(), "nothing is red: {places:?}");
        seen.find(&sums, (500.0, 40.0), 2, &mut Scratch::default(), &mut places);
        assert!(places.is_empty(), "a box wider than the frame");
    }
}
