//! Sums over every window of a picture, by sliding.

use crate::frame::{PlaneRef, Size};

/// What pixels are counted from in all sums of this backend: it halves the numbers that the FFT has to carry.
pub(super) const MIDDLE: i32 = 128;

/// Sums of I - [`MIDDLE`] and of its square over the windows of one row of positions, kept up to date from row to row.
///
/// A step down adds a row of pixels to the column sums and takes one off; the windows of the row then slide along the
/// columns: five additions a position, whatever the window's size.
pub(super) struct WindowSums {
    /// Of each column of the picture over the rows of the window.
    columns: Vec<i64>,
    /// The same of squares.
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

    /// Makes `sums` and `squares` those of the windows of row `y` of positions. Rows are to be asked for from 0, one by one.
    ///
    /// Of the windows in `picture` the first `count` are made; what follows in `sums` and `squares` is unspecified.
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

/// Sums of `length` neighbours each: `out[x]` is that of `columns[x..x + length]`.
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
}
