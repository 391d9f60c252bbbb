//! Results of the texture unit, computed on the processor as the CUDA Programming Guide's appendix on texture
//! fetching says: with N texels along an axis and a coordinate of x texels,
//!
//! - point filter: texel `floor(x)`;
//! - linear filter: texels `i` and `i + 1` with `1 - a` and `a`, where `i` and `a` are the whole and the
//!   fraction of `x - 1/2`; `a` has 8 bits of fraction;
//! - normalised coordinates are multiplied by N, after wrap has taken `x - floor(x)` of them and mirror has
//!   taken that, or 1 minus it where `floor(x)` is odd;
//! - a texel outside is the one at the edge (clamp), the one at the other edge (wrap; mirror: the one at the
//!   edge again), or 0 (border).
//!
//! Not documented: whether `a` is rounded or cut to its 8 bits (here: rounded), and how the blended value is
//! rounded (here: not at all).

use super::sampling::{Address, Coordinates, Element, Filter, Memory, Read, Sampling, Texel};

/// Texels as the model and its tests make and see them.
pub(super) trait Channels: Texel {
    /// Channel by channel from `noise`; the first two texels are the least and the greatest of integers.
    fn random(index: usize, noise: &mut impl FnMut() -> u64) -> Self;
    /// The channels' values; 0 for those that it has not.
    fn values(self) -> [f64; 4];
}

macro_rules! channels {
    ($($number:ty: $least:expr, $greatest:expr, $make:expr;)*) => { $(
        impl Channels for $number {
            fn random(index: usize, noise: &mut impl FnMut() -> u64) -> Self {
                match index {
                    0 => $least,
                    1 => $greatest,
                    _ => $make(noise()),
                }
            }
            fn values(self) -> [f64; 4] {
                [f64::from(self), 0.0, 0.0, 0.0]
            }
        }
        impl Channels for [$number; 2] {
            fn random(index: usize, noise: &mut impl FnMut() -> u64) -> Self {
                std::array::from_fn(|_| Channels::random(index, noise))
            }
            fn values(self) -> [f64; 4] {
                [f64::from(self[0]), f64::from(self[1]), 0.0, 0.0]
            }
        }
        impl Channels for [$number; 4] {
            fn random(index: usize, noise: &mut impl FnMut() -> u64) -> Self {
                std::array::from_fn(|_| Channels::random(index, noise))
            }
            fn values(self) -> [f64; 4] {
                self.map(f64::from)
            }
        }
    )* };
}
channels! {
    u8: u8::MIN, u8::MAX, |bits: u64| bits as u8;
    i8: i8::MIN, i8::MAX, |bits: u64| bits as i8;
    u16: u16::MIN, u16::MAX, |bits: u64| bits as u16;
    i16: i16::MIN, i16::MAX, |bits: u64| bits as i16;
    f32: -100.0, 100.0, |bits: u64| (bits % 20_001) as f32 / 100.0 - 100.0;
}

/// A texture on the processor.
pub(super) struct Model {
    memory: Memory,
    sampling: Sampling,
    size: [usize; 3],
    /// As a point fetch reads them.
    texels: Vec<[f64; 4]>,
}

impl Model {
    /// A texture of `width x height x depth` texels, 1 along axes that the memory has not.
    pub(super) fn new<T: Channels>(
        memory: Memory,
        size: [usize; 3],
        texels: &[T],
        sampling: Sampling,
    ) -> Self {
        assert_eq!(texels.len(), size.iter().product::<usize>(), "texels of {size:?}");
        sampling.check(memory, T::ELEMENT).expect("modes that go together");
        let read = |value: f64| match (sampling.read, T::ELEMENT) {
            (Read::Element, _) | (_, Element::F32) => value,
            (_, Element::U8) => value / 255.0,
            (_, Element::I8) => (value / 127.0).max(-1.0),
            (_, Element::U16) => value / 65535.0,
            (_, Element::I16) => (value / 32767.0).max(-1.0),
        };
        let texels = texels.iter().map(|texel| texel.values().map(read)).collect();
        Self { memory, sampling, size, texels }
    }

    /// Greatest difference between two values that can be blended, which bounds what one step of a weight
    /// changes.
    pub(super) fn range(&self) -> f64 {
        // 0 is among them: the border's.
        let (low, high) = self
            .texels
            .iter()
            .flatten()
            .fold((0.0, 0.0), |(low, high): (f64, f64), &value| (low.min(value), high.max(value)));
        high - low
    }

    /// Returns the value of a fetch at `at`; linear memory takes the first number as an index.
    pub(super) fn fetch(&self, at: [f32; 3]) -> [f64; 4] {
        if self.memory == Memory::Linear {
            let index = at[0] as i64;
            let inside = (0..self.texels.len() as i64).contains(&index);
            return if inside { self.texels[index as usize] } else { [0.0; 4] };
        }
        let dimensions = if self.memory == Memory::Array3 { 3 } else { 2 };
        // Along each axis two texels with their weights; missing axes have one texel.
        let mut axes = [[(Some(0), 1.0), (None, 0.0)]; 3];
        for (axis, x) in at.into_iter().enumerate().take(dimensions) {
            axes[axis] = self.along(axis, x);
        }
        let mut sum = [0.0; 4];
        for (z, z_weight) in axes[2] {
            for (y, y_weight) in axes[1] {
                for (x, x_weight) in axes[0] {
                    let (Some(x), Some(y), Some(z)) = (x, y, z) else { continue };
                    let texel = self.texels[(z * self.size[1] + y) * self.size[0] + x];
                    for (sum, value) in sum.iter_mut().zip(texel) {
                        *sum += x_weight * y_weight * z_weight * value;
                    }
                }
            }
        }
        sum
    }

    fn along(&self, axis: usize, x: f32) -> [(Option<usize>, f64); 2] {
        let Sampling { filter, address, coordinates, .. } = self.sampling;
        let length = self.size[axis] as f64;
        let x = f64::from(x);
        let x = match (coordinates, address) {
            (Coordinates::Pixels, _) => x,
            (_, Address::Wrap) => (x - x.floor()) * length,
            (_, Address::Mirror) => {
                let fraction = x - x.floor();
                let is_backwards = x.floor().rem_euclid(2.0) == 1.0;
                (if is_backwards { 1.0 - fraction } else { fraction }) * length
            }
            (_, Address::Clamp | Address::Border) => x * length,
        };
        match filter {
            Filter::Point => [(self.texel(axis, x.floor() as i64), 1.0), (None, 0.0)],
            Filter::Linear => {
                let fixed = ((x - 0.5) * 256.0).round() as i64;
                let (i, a) = (fixed.div_euclid(256), fixed.rem_euclid(256) as f64 / 256.0);
                [(self.texel(axis, i), 1.0 - a), (self.texel(axis, i + 1), a)]
            }
        }
    }

    /// Returns the texel of the axis that is read for texel `i`; none is the border.
    fn texel(&self, axis: usize, i: i64) -> Option<usize> {
        let length = self.size[axis] as i64;
        let i = match self.sampling.address {
            Address::Border => Some(i).filter(|i| (0..length).contains(i))?,
            Address::Wrap => i.rem_euclid(length),
            // Mirrored coordinates lie inside, so that a texel is at most one beyond the edge: which is the
            // edge again.
            Address::Clamp | Address::Mirror => i.clamp(0, length - 1),
        };
        Some(i as usize)
    }
}

/// Numbers that look like chance, the same every time: 31 bits each.
pub(super) fn noise(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row<T: Channels>(texels: &[T], sampling: Sampling) -> Model {
        Model::new(Memory::Rows, [texels.len(), 1, 1], texels, sampling)
    }

    fn at(model: &Model, x: f32) -> f64 {
        model.fetch([x, 0.5, 0.0])[0]
    }

    fn linear(address: Address, coordinates: Coordinates) -> Sampling {
        Sampling { filter: Filter::Linear, address, coordinates, read: Read::Element }
    }

    #[test]
    fn a_point_fetch_takes_the_texel_that_the_coordinate_lies_in() {
        let model = row(&[10_u8, 20, 30], Sampling::default());
        let read = [-5.0, 0.0, 0.99, 1.0, 2.5, 3.0, 1e9].map(|x| at(&model, x));
        assert_eq!(read, [10.0, 10.0, 10.0, 20.0, 30.0, 30.0, 30.0]);
        let model = row(&[10_u8, 20, 30], Sampling { address: Address::Border, ..Sampling::default() });
        assert_eq!([-0.1, 0.0, 2.9, 3.0].map(|x| at(&model, x)), [0.0, 10.0, 30.0, 0.0]);
    }

    #[test]
    fn wrap_repeats_and_mirror_turns_back() {
        let normalised =
            |address| Sampling { address, coordinates: Coordinates::Normalised, ..Sampling::default() };
        let wrap = row(&[1_u8, 2, 3, 4], normalised(Address::Wrap));
        let mirror = row(&[1_u8, 2, 3, 4], normalised(Address::Mirror));
        let centres = (-4..8).map(|i| (i as f32 + 0.5) / 4.0);
        let read = |model: &Model| centres.clone().map(|x| at(model, x) as u8).collect::<Vec<_>>();
        assert_eq!(read(&wrap), [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4]);
        assert_eq!(read(&mirror), [4, 3, 2, 1, 1, 2, 3, 4, 4, 3, 2, 1]);
    }

    #[test]
    fn a_linear_fetch_blends_in_steps_of_a_256th() {
        let model = row(&[0.0_f32, 256.0], linear(Address::Clamp, Coordinates::Pixels));
        assert_eq!(
            [0.25, 0.5, 1.0, 1.25, 1.5, 7.0].map(|x| at(&model, x)),
            [0.0, 0.0, 128.0, 192.0, 256.0, 256.0]
        );
        // 0.3 / 256 rounds to no step, 0.6 / 256 to one.
        assert_eq!([0.3, 0.6].map(|steps| at(&model, 0.5 + steps / 256.0)), [0.0, 1.0]);
    }

    #[test]
    fn a_linear_fetch_at_the_edge_blends_with_what_lies_outside() {
        let texels = [100.0_f32, 0.0, 0.0, 200.0];
        let read = |address, coordinates| at(&row(&texels, linear(address, coordinates)), 0.0);
        assert_eq!(read(Address::Clamp, Coordinates::Pixels), 100.0);
        assert_eq!(read(Address::Border, Coordinates::Pixels), 50.0);
        assert_eq!(read(Address::Wrap, Coordinates::Normalised), 150.0);
        assert_eq!(read(Address::Mirror, Coordinates::Normalised), 100.0);
    }

    #[test]
    fn three_axes_have_a_weight_each() {
        let mut texels = [0.0_f32; 8];
        texels[7] = 64.0;
        let model =
            Model::new(Memory::Array3, [2, 2, 2], &texels, linear(Address::Clamp, Coordinates::Pixels));
        assert_eq!(model.fetch([1.25, 1.0, 0.75])[0], 64.0 * 0.75 * 0.5 * 0.25);
    }

    #[test]
    fn normalised_floats_end_at_one() {
        let sampling = Sampling { read: Read::NormalisedFloat, ..Sampling::default() };
        let model = row(&[[i8::MIN, -127], [0, 127]], sampling);
        assert_eq!(model.fetch([0.5, 0.5, 0.0]), [-1.0, -1.0, 0.0, 0.0]);
        assert_eq!(model.fetch([1.5, 0.5, 0.0]), [0.0, 1.0, 0.0, 0.0]);
        assert_eq!(at(&row(&[u16::MAX, 0], sampling), 0.5), 1.0);
    }

    #[test]
    fn linear_memory_is_0_outside() {
        let sampling = Sampling { address: Address::Border, ..Sampling::default() };
        let model = Model::new(Memory::Linear, [3, 1, 1], &[5_i16, -6, 7], sampling);
        assert_eq!(
            [-1.0, 0.0, 1.0, 2.0, 3.0].map(|x| model.fetch([x, 0.0, 0.0])[0]),
            [0.0, 5.0, -6.0, 7.0, 0.0]
        );
    }
}
