//! Sums over every window of a picture, by sliding.

use super::simd::Level;
use crate::error::Result;
use crate::frame::{PlaneRef, Size};
use crate::memory;

/// Subtracted from pixels in all sums of this backend: it halves the numbers in the FFT.
pub(super) const MIDDLE: i32 = 128;

/// Sums of I - [`MIDDLE`] and of its square over the windows of one row of positions, kept up to date from
/// row to row.
///
/// A step down adds a row of pixels to the column sums and takes one off; the windows of the row then slide
/// along the columns: five additions a position, whatever the window's size.
pub(super) struct WindowSums {
    /// Sums of each column of the picture over the rows of the window.
    columns: Vec<i64>,
    /// Sums of squares in each column.
    column_squares: Vec<i64>,
    /// S of each window of the row.
    pub(super) sums: Vec<i64>,
    /// SS of each window of the row.
    pub(super) squares: Vec<i64>,
}

impl WindowSums {
    /// Room for pictures of up to `width` columns.
    pub(super) fn new(width: usize) -> Self {
        let zeros = || vec![0; width];
        Self { columns: zeros(), column_squares: zeros(), sums: zeros(), squares: zeros() }
    }

    /// Makes `sums` and `squares` those of the windows of row `y` of positions. Rows are to be asked for from
    /// 0, one by one.
    ///
    /// It makes the sums of the first `count` windows in `picture`; what follows in `sums` and `squares` is
    /// unspecified.
    ///
    /// # Panics
    /// If a window does not lie inside the picture, or the picture is wider than there is room for.
    pub(super) fn go_to(&mut self, y: usize, picture: PlaneRef<'_>, window: Size, count: usize) {
        let width = count + window.width - 1;
        let columns = &mut self.columns[..width];
        let column_squares = &mut self.column_squares[..width];
        if y == 0 {
            columns.fill(0);
            column_squares.fill(0);
            for y in 0..window.height {
                add_row(&picture.row(y)[..width], columns, column_squares);
            }
        } else {
            let (leaving, entering) = (picture.row(y - 1), picture.row(y + window.height - 1));
            replace_row(&leaving[..width], &entering[..width], columns, column_squares);
        }
        slide(columns, window.width, &mut self.sums[..count]);
        slide(column_squares, window.width, &mut self.squares[..count]);
    }
}

/// Maximum pixels of a window for which [`WindowVariances`] are exact: n * SS is less than 2^52 then.
pub(super) const MAX_WINDOW: usize = 1 << 18;

/// Where SS begins in a packed sum, above S: of [`MAX_WINDOW`] pixels S has 26 bits and SS has 34.
const PACKED: u32 = 28;

/// n * SS - S * S of the windows of one row of positions, rounded to f32, kept up to date from row to row.
///
/// As [`WindowSums`], but S and SS share a 64-bit number, so that one chain of additions slides both.
pub(super) struct WindowVariances {
    level: Level,
    /// Packed sums of each column of the picture over the rows of the window.
    columns: Vec<u64>,
    /// Packed sums of each window of the row.
    sums: Vec<u64>,
}

impl WindowVariances {
    /// Room for pictures of up to `width` columns.
    pub(super) fn new(width: usize, level: Level) -> Self {
        Self { level, columns: vec![0; width], sums: vec![0; width] }
    }

    /// Writes the variances of the windows of row `y` of positions to `out`, the first `out.len()` of them.
    /// Rows are to be asked for from 0, one by one.
    ///
    /// # Panics
    /// If a window does not lie inside the picture, or the picture is wider than there is room for.
    pub(super) fn go_to(&mut self, y: usize, picture: PlaneRef<'_>, window: Size, out: &mut [f32]) {
        debug_assert!(window.area() <= MAX_WINDOW, "sums of {window} do not fit");
        let width = out.len() + window.width - 1;
        let (columns, sums) = (&mut self.columns[..width], &mut self.sums[..out.len()]);
        self.level.run(
            #[inline(always)]
            || {
                if y == 0 {
                    columns.fill(0);
                    for y in 0..window.height {
                        for (column, &pixel) in columns.iter_mut().zip(&picture.row(y)[..width]) {
                            *column += packed(pixel);
                        }
                    }
                } else {
                    let (leaving, entering) = (picture.row(y - 1), picture.row(y + window.height - 1));
                    let rows = leaving[..width].iter().zip(&entering[..width]);
                    for (column, (&old, &new)) in columns.iter_mut().zip(rows) {
                        *column = column.wrapping_add(packed(new)).wrapping_sub(packed(old));
                    }
                }
                let mut sum = columns[..window.width].iter().sum::<u64>();
                sums[0] = sum;
                let ends = columns.iter().zip(&columns[window.width..]);
                for (out, (&leaving, &entering)) in sums[1..].iter_mut().zip(ends) {
                    sum = sum.wrapping_add(entering.wrapping_sub(leaving));
                    *out = sum;
                }
                let n = window.area() as f64;
                for (out, &sum) in out.iter_mut().zip(&*sums) {
                    let (s, ss) = (small_to_f64(sum & ((1 << PACKED) - 1)), small_to_f64(sum >> PACKED));
                    *out = (n * ss - s * s) as f32;
                }
            },
        );
    }
}

/// Packed sums of each row of a picture, from its first pixel on: a span of pixels adds one difference to a
/// window's sums.
pub(super) struct RowSums {
    level: Level,
    /// Numbers from one row to the next.
    stride: usize,
    sums: Vec<u64>,
    /// Packed sums of the windows of one row of positions.
    windows: Vec<u64>,
}

impl RowSums {
    /// Bytes for pictures of up to a size.
    pub(super) fn bytes(size: Size) -> usize {
        size_of::<u64>() * ((size.width + 1) * size.height + size.width)
    }

    /// Room for pictures of up to a size.
    ///
    /// # Errors
    /// `NoMemory`.
    pub(super) fn new(size: Size, level: Level) -> Result<Self> {
        let stride = size.width + 1;
        let sums = memory::filled("sums of rows", stride * size.height, 0)?;
        Ok(Self { level, stride, sums, windows: memory::filled("sums of windows", size.width, 0)? })
    }

    /// Makes the sums of a picture.
    ///
    /// # Panics
    /// If it is larger than there is room for.
    pub(super) fn fill(&mut self, picture: PlaneRef<'_>) {
        assert!(picture.size().width < self.stride, "sums of a {} picture", picture.size());
        for (sums, row) in self.sums.chunks_exact_mut(self.stride).zip(picture.rows()) {
            let mut sum = 0_u64;
            for (out, &pixel) in sums[1..].iter_mut().zip(row) {
                sum = sum.wrapping_add(packed(pixel));
                *out = sum;
            }
        }
    }

    /// Writes n * SS - S * S of the windows of row `y` of positions, the first `out.len()` of them, rounded
    /// to f32: of the `n` pixels in the spans of each window's rows.
    pub(super) fn variances(&mut self, y: usize, spans: &[(u32, u32)], n: usize, out: &mut [f32]) {
        debug_assert!(n <= MAX_WINDOW, "sums of {n} pixels do not fit");
        let Self { level, stride, sums, windows } = self;
        let windows = &mut windows[..out.len()];
        level.run(
            #[inline(always)]
            || {
                windows.fill(0);
                let rows = sums[y * *stride..].chunks_exact(*stride).zip(spans);
                for (row, &(from, to)) in rows.filter(|(_, (from, to))| from < to) {
                    let starts = &row[from as usize..][..windows.len()];
                    let ends = &row[to as usize..][..windows.len()];
                    for ((window, &start), &end) in windows.iter_mut().zip(starts).zip(ends) {
                        *window = window.wrapping_add(end.wrapping_sub(start));
                    }
                }
                let n = n as f64;
                for (out, &sum) in out.iter_mut().zip(&*windows) {
                    let (s, ss) = (small_to_f64(sum & ((1 << PACKED) - 1)), small_to_f64(sum >> PACKED));
                    *out = (n * ss - s * s) as f32;
                }
            },
        );
    }

    /// n * SS - S * S of `n` pixels of the window at (x, y), exact: those in the spans of its rows, from one
    /// column to before another.
    pub(super) fn variance(&self, (x, y): (usize, usize), spans: &[(u32, u32)], n: usize) -> i64 {
        debug_assert!(n <= MAX_WINDOW, "sums of {n} pixels do not fit");
        let rows = self.sums[y * self.stride..].chunks_exact(self.stride);
        let sum = rows.zip(spans).fold(0_u64, |sum, (row, &(from, to))| {
            sum.wrapping_add(row[x + to as usize]).wrapping_sub(row[x + from as usize])
        });
        let (s, ss) = ((sum & ((1 << PACKED) - 1)) as i64, (sum >> PACKED) as i64);
        n as i64 * ss - s * s
    }
}

#[inline(always)]
fn packed(pixel: u8) -> u64 {
    let pixel = u32::from(pixel);
    (u64::from(pixel * pixel) << PACKED) + u64::from(pixel)
}

/// A number below 2^52: in a f64 between 2^52 and 2^53 the low bits count ones. Conversions of 64-bit numbers
/// are slow or not available; this is two instructions for a whole vector.
#[inline(always)]
fn small_to_f64(value: u64) -> f64 {
    const BASE: f64 = 4_503_599_627_370_496.0;
    f64::from_bits(value | BASE.to_bits()) - BASE
}

fn add_row(row: &[u8], columns: &mut [i64], squares: &mut [i64]) {
    for ((&pixel, column), square) in row.iter().zip(columns).zip(squares) {
        let centred = i32::from(pixel) - MIDDLE;
        *column += i64::from(centred);
        *square += i64::from(centred * centred);
    }
}

fn replace_row(leaving: &[u8], entering: &[u8], columns: &mut [i64], squares: &mut [i64]) {
    for (((&old, &new), column), square) in leaving.iter().zip(entering).zip(columns).zip(squares) {
        let (old, new) = (i32::from(old) - MIDDLE, i32::from(new) - MIDDLE);
        *column += i64::from(new - old);
        *square += i64::from(new * new - old * old);
    }
}

/// Sums of `length` neighbours each: `out[x]` is the sum of `columns[x..x + length]`.
fn slide(columns: &[i64], length: usize, out: &mut [i64]) {
    let mut sum = columns[..length - 1].iter().sum::<i64>();
    for ((out, &leaving), &entering) in out.iter_mut().zip(columns).zip(&columns[length - 1..]) {
        sum += entering;
        *out = sum;
        sum -= leaving;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Rect;

    #[test]
    fn the_variance_of_spans_is_that_of_their_pixels() {
        let (size, stride) = (Size::new(31, 17), 37);
        let data: Vec<u8> = (0..stride * 17).map(|i| (i * i * 29 % 257) as u8).collect();
        let picture = PlaneRef::new(&data, size, stride);
        let mut rows = RowSums::new(Size::new(40, 20), Level::best()).unwrap();
        rows.fill(picture);
        let spans = [(0, 0), (3, 5), (1, 9), (0, 9), (8, 9)];
        for (x, y) in [(0, 0), (22, 12), (11, 7)] {
            let pixels = |row: usize, (from, to): (u32, u32)| {
                &picture.row(y + row)[x + from as usize..x + to as usize]
            };
            let all: Vec<_> = spans.iter().enumerate().flat_map(|(row, span)| pixels(row, *span)).collect();
            let n = all.len() as i64;
            let (s, ss) =
                all.iter().fold((0, 0), |(s, ss), &&v| (s + i64::from(v), ss + i64::from(v).pow(2)));
            assert_eq!(rows.variance((x, y), &spans, all.len()), n * ss - s * s);
            for level in Level::available() {
                rows.level = level;
                let mut row = vec![f32::NAN; x + 1];
                rows.variances(y, &spans, all.len(), &mut row);
                assert_eq!(row[x], (n * ss - s * s) as f32, "{level}");
            }
        }
    }

    #[test]
    fn sliding_sums_equal_sums_over_each_window() {
        let size = Size::new(31, 17);
        let stride = 37;
        let data: Vec<u8> = (0..stride * 17).map(|i| (i * i * 29 % 257) as u8).collect();
        let picture = PlaneRef::new(&data, size, stride);
        for (w, h) in [(1, 1), (7, 5), (31, 17), (31, 1), (1, 17), (8, 16)] {
            let mut sums = WindowSums::new(31);
            sums.sums.fill(i64::MIN);
            let count = 31 - w + 1;
            for y in 0..=17 - h {
                sums.go_to(y, picture, Size::new(w, h), count);
                for x in 0..count {
                    let window = picture.crop(Rect::new(x, y, w, h)).to_plane();
                    let centred = || window.data().iter().map(|&v| i64::from(v) - 128);
                    assert_eq!(sums.sums[x], centred().sum::<i64>(), "{w}x{h} at {x}, {y}");
                    assert_eq!(sums.squares[x], centred().map(|v| v * v).sum::<i64>(), "{w}x{h} at {x}, {y}");
                }
            }
        }
    }
    #[test]
    fn sliding_variances_are_those_of_each_window_at_every_level() {
        let size = Size::new(31, 17);
        let data: Vec<u8> =
            (0..31 * 17).map(|i| if i % 5 == 0 { 255 } else { (i * i % 256) as u8 }).collect();
        let picture = PlaneRef::new(&data, size, 31);
        for level in Level::available() {
            for (w, h) in [(1, 2), (7, 5), (31, 17), (31, 1), (1, 17), (8, 16)] {
                let mut variances = WindowVariances::new(31, level);
                let mut row = vec![f32::NAN; 31 - w + 1];
                for y in 0..=17 - h {
                    variances.go_to(y, picture, Size::new(w, h), &mut row);
                    for (x, &found) in row.iter().enumerate() {
                        let window = picture.crop(Rect::new(x, y, w, h)).to_plane();
                        let sum =
                            |f: fn(i64) -> i64| window.data().iter().map(|&v| f(i64::from(v))).sum::<i64>();
                        let (s, ss) = (sum(|v| v), sum(|v| v * v));
                        let expected = ((w * h) as i64 * ss - s * s) as f32;
                        assert_eq!(found, expected, "{w}x{h} at {x}, {y}, {level}");
                    }
                }
            }
        }
    }

    #[test]
    fn variances_of_the_largest_windows_are_exact() {
        let size = Size::new(513, 512);
        let data: Vec<u8> = (0..size.area()).map(|i| if i % 513 < 257 { 255 } else { 254 }).collect();
        let mut variances = WindowVariances::new(513, Level::best());
        let mut row = [f32::NAN; 2];
        variances.go_to(0, PlaneRef::new(&data, size, 513), Size::new(512, 512), &mut row);
        // n / 257 columns of one grey and n / 255 of the other: n * n * p * (1 - p).
        let expected = |bright: i64| (512 * 512 * bright * (512 - bright)) as f32;
        assert_eq!(row, [257, 256].map(expected));
    }
}
