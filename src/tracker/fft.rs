//! Fourier transforms of square grids, many channels at once, in an order of operations that is written here.
//!
//! A library picks its instructions by the machine it runs on, and with them its rounding. These loops add and multiply f32
//! one after the other, never fused, so every machine gives the same bits. Channels lie next to each other: the innermost
//! loop runs over them and is what the compiler vectorises.

/// Cells on a side of the grid.
pub(super) const GRID: usize = 32;

/// Frequencies kept in a row: a real grid's others are their conjugates.
pub(super) const HALF: usize = GRID / 2 + 1;

/// The half spectrum of a grid of `channels` real channels: row, column in `0..HALF`, channel.
#[derive(Clone, Default)]
pub(super) struct Spectrum {
    pub(super) re: Vec<f32>,
    pub(super) im: Vec<f32>,
}

impl Spectrum {
    pub(super) fn zero(channels: usize) -> Self {
        Self { re: vec![0.0; GRID * HALF * channels], im: vec![0.0; GRID * HALF * channels] }
    }
}

/// Transforms grids of one number of channels. Two real channels travel as one complex one.
pub(super) struct Fft {
    channels: usize,
    stages: Vec<Stage>,
    re: Vec<f32>,
    im: Vec<f32>,
    spare_re: Vec<f32>,
    spare_im: Vec<f32>,
}

/// One stage of Stockham's self-sorting transform: `groups` butterflies of `radix` inputs over `stride` elements.
struct Stage {
    radix: usize,
    groups: usize,
    stride: usize,
    /// Real and imaginary parts of w, w^2 and w^3 for each group.
    twiddles: Vec<[f32; 6]>,
}

impl Fft {
    /// `channels` is even.
    pub(super) fn new(channels: usize) -> Self {
        let room = || vec![0.0; GRID * GRID * channels / 2];
        let (mut left, mut stride, mut stages) = (GRID, 1, Vec::new());
        while left > 1 {
            let radix = if left % 4 == 0 { 4 } else { 2 };
            let groups = left / radix;
            let twiddles = (0..groups).map(|group| {
                let mut w = [0.0; 6];
                for power in 1..radix {
                    let angle = -2.0 * std::f64::consts::PI * (power * group) as f64 / left as f64;
                    w[2 * power - 2] = libm::cos(angle) as f32;
                    w[2 * power - 1] = libm::sin(angle) as f32;
                }
                w
            });
            stages.push(Stage { radix, groups, stride, twiddles: twiddles.collect() });
            left = groups;
            stride *= radix;
        }
        Self { channels, stages, re: room(), im: room(), spare_re: room(), spare_im: room() }
    }

    /// `grid` holds `GRID * GRID` cells of `channels` numbers, row by row.
    pub(super) fn forward(&mut self, grid: &[f32], spectrum: &mut Spectrum) {
        let half = self.channels / 2;
        let packed = self.re.chunks_exact_mut(half).zip(self.im.chunks_exact_mut(half));
        for (cell, (re, im)) in grid.chunks_exact(self.channels).zip(packed) {
            re.copy_from_slice(&cell[..half]);
            im.copy_from_slice(&cell[half..]);
        }
        self.transform();
        for y in 0..GRID {
            for x in 0..HALF {
                let at = (y * GRID + x) * half;
                let mirrored = ((GRID - y) % GRID * GRID + (GRID - x) % GRID) * half;
                let (pr, pi) = (&self.re[at..][..half], &self.im[at..][..half]);
                let (qr, qi) = (&self.re[mirrored..][..half], &self.im[mirrored..][..half]);
                let out = (y * HALF + x) * self.channels;
                let (ar, br) = spectrum.re[out..][..self.channels].split_at_mut(half);
                let (ai, bi) = spectrum.im[out..][..self.channels].split_at_mut(half);
                for c in 0..half {
                    ar[c] = 0.5 * (pr[c] + qr[c]);
                    ai[c] = 0.5 * (pi[c] - qi[c]);
                    br[c] = 0.5 * (pi[c] + qi[c]);
                    bi[c] = 0.5 * (qr[c] - pr[c]);
                }
            }
        }
    }

    /// The grid whose spectrum this is.
    pub(super) fn inverse(&mut self, spectrum: &Spectrum, grid: &mut [f32]) {
        let (channels, half) = (self.channels, self.channels / 2);
        // The inverse is the forward transform with real and imaginary parts swapped, on the way in and on the way out.
        for y in 0..GRID {
            for x in 0..GRID {
                let (from, sign) =
                    if x < HALF { (y * HALF + x, 1.0) } else { ((GRID - y) % GRID * HALF + GRID - x, -1.0) };
                let (ar, br) = spectrum.re[from * channels..][..channels].split_at(half);
                let (ai, bi) = spectrum.im[from * channels..][..channels].split_at(half);
                let at = (y * GRID + x) * half;
                let (re, im) = (&mut self.re[at..][..half], &mut self.im[at..][..half]);
                for c in 0..half {
                    im[c] = ar[c] - sign * bi[c];
                    re[c] = sign * ai[c] + br[c];
                }
            }
        }
        self.transform();
        let scale = 1.0 / (GRID * GRID) as f32;
        let packed = self.re.chunks_exact(half).zip(self.im.chunks_exact(half));
        for (cell, (re, im)) in grid.chunks_exact_mut(channels).zip(packed) {
            let (a, b) = cell.split_at_mut(half);
            for c in 0..half {
                a[c] = im[c] * scale;
                b[c] = re[c] * scale;
            }
        }
    }

    /// Rows first, then columns: a column's elements are whole rows.
    fn transform(&mut self) {
        let Self { channels, stages, re, im, spare_re, spare_im } = self;
        let row = GRID * *channels / 2;
        for y in 0..GRID {
            let line = y * row..(y + 1) * row;
            run(stages, *channels / 2, &mut re[line.clone()], &mut im[line], spare_re, spare_im);
        }
        run(stages, row, re, im, spare_re, spare_im);
    }
}

/// Transforms `GRID` elements of `width` numbers each, in place.
fn run(
    stages: &[Stage],
    width: usize,
    re: &mut [f32],
    im: &mut [f32],
    spare_re: &mut [f32],
    spare_im: &mut [f32],
) {
    let length = GRID * width;
    let mut from = (&mut re[..length], &mut im[..length]);
    let mut to = (&mut spare_re[..length], &mut spare_im[..length]);
    for stage in stages {
        stage.run(width, from.0, from.1, to.0, to.1);
        std::mem::swap(&mut from, &mut to);
    }
    if stages.len() % 2 == 1 {
        to.0.copy_from_slice(from.0);
        to.1.copy_from_slice(from.1);
    }
}

impl Stage {
    fn run(&self, width: usize, in_re: &[f32], in_im: &[f32], out_re: &mut [f32], out_im: &mut [f32]) {
        let run = self.stride * width;
        let outputs =
            out_re.chunks_exact_mut(self.radix * run).zip(out_im.chunks_exact_mut(self.radix * run));
        for ((group, w), (re, im)) in self.twiddles.iter().enumerate().zip(outputs) {
            let input = |k: usize| {
                let at = (group + k * self.groups) * run;
                (&in_re[at..][..run], &in_im[at..][..run])
            };
            if self.radix == 4 {
                butterfly_4([input(0), input(1), input(2), input(3)], w, re, im);
            } else {
                butterfly_2([input(0), input(1)], w, re, im);
            }
        }
    }
}

type Complex<'a> = (&'a [f32], &'a [f32]);

fn butterfly_2([(ar, ai), (br, bi)]: [Complex<'_>; 2], w: &[f32; 6], re: &mut [f32], im: &mut [f32]) {
    let run = ar.len();
    let (re_0, re_1) = re.split_at_mut(run);
    let (im_0, im_1) = im.split_at_mut(run);
    let (re_1, im_1) = (&mut re_1[..run], &mut im_1[..run]);
    for i in 0..run {
        re_0[i] = ar[i] + br[i];
        im_0[i] = ai[i] + bi[i];
        let (dr, di) = (ar[i] - br[i], ai[i] - bi[i]);
        re_1[i] = dr * w[0] - di * w[1];
        im_1[i] = dr * w[1] + di * w[0];
    }
}

fn butterfly_4(
    [(ar, ai), (br, bi), (cr, ci), (dr, di)]: [Complex<'_>; 4],
    w: &[f32; 6],
    re: &mut [f32],
    im: &mut [f32],
) {
    let run = ar.len();
    let (re_01, re_23) = re.split_at_mut(2 * run);
    let (im_01, im_23) = im.split_at_mut(2 * run);
    let ((re_0, re_1), (im_0, im_1)) = (re_01.split_at_mut(run), im_01.split_at_mut(run));
    let ((re_2, re_3), (im_2, im_3)) = (re_23.split_at_mut(run), im_23.split_at_mut(run));
    let (re_3, im_3) = (&mut re_3[..run], &mut im_3[..run]);
    for i in 0..run {
        let (er, ei) = (ar[i] + cr[i], ai[i] + ci[i]);
        let (fr, fi) = (ar[i] - cr[i], ai[i] - ci[i]);
        let (gr, gi) = (br[i] + dr[i], bi[i] + di[i]);
        let (hr, hi) = (br[i] - dr[i], bi[i] - di[i]);
        re_0[i] = er + gr;
        im_0[i] = ei + gi;
        let (ur, ui) = (fr + hi, fi - hr);
        let (vr, vi) = (er - gr, ei - gi);
        let (tr, ti) = (fr - hi, fi + hr);
        re_1[i] = ur * w[0] - ui * w[1];
        im_1[i] = ur * w[1] + ui * w[0];
        re_2[i] = vr * w[2] - vi * w[3];
        im_2[i] = vr * w[3] + vi * w[2];
        re_3[i] = tr * w[4] - ti * w[5];
        im_3[i] = tr * w[5] + ti * w[4];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(channels: usize) -> Vec<f32> {
        (0..GRID * GRID * channels).map(|i| (i * 7919 % 1013) as f32 / 1013.0).collect()
    }

    #[test]
    fn a_spectrum_is_that_of_the_definition() {
        let (channels, grid) = (4, grid(4));
        let mut spectrum = Spectrum::zero(channels);
        Fft::new(channels).forward(&grid, &mut spectrum);
        for (ky, kx, channel) in [(0, 0, 0), (3, 2, 3), (31, 16, 1), (16, 0, 2), (17, 15, 0)] {
            let (mut re, mut im) = (0.0, 0.0);
            for y in 0..GRID {
                for x in 0..GRID {
                    let angle = -2.0 * std::f64::consts::PI * (ky * y + kx * x) as f64 / GRID as f64;
                    let value = f64::from(grid[(y * GRID + x) * channels + channel]);
                    re += value * libm::cos(angle);
                    im += value * libm::sin(angle);
                }
            }
            let at = (ky * HALF + kx) * channels + channel;
            // 1024 terms below 1, each rounded some ten times to 24 bits.
            assert!((f64::from(spectrum.re[at]) - re).abs() < 2e-3, "{ky} {kx}: {} {re}", spectrum.re[at]);
            assert!((f64::from(spectrum.im[at]) - im).abs() < 2e-3, "{ky} {kx}: {} {im}", spectrum.im[at]);
        }
    }

    #[test]
    fn the_inverse_gives_the_grid_back() {
        let (mut fft, mut spectrum, grid) = (Fft::new(6), Spectrum::zero(6), grid(6));
        fft.forward(&grid, &mut spectrum);
        let mut back = vec![9.0; grid.len()];
        fft.inverse(&spectrum, &mut back);
        for (a, b) in grid.iter().zip(&back) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
    }
}
