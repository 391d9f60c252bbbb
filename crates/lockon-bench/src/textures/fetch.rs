//! Fetches in every mode that texture objects have, beside the model of the texture unit: `lockon-bench
//! textures` shows them, the tests below hold them to what is allowed.

#![expect(unsafe_code, reason = "a kernel's arguments carry no types, buffers under a texture no owner")]

use std::sync::Arc;

use lockon_core::error::Result;
use lockon_core::frame::Size;
use lockon_cuda::driver::{DeviceBuffer, Gpu, Module, Pod, Priority, Stream, arg, pitch_for};

use super::model::{Channels, Model, noise};
use super::sampling::{Address, Coordinates, Element, Filter, Memory, Read, Sampling};
use super::view::View;
use super::{Array, PTX};

pub(super) const MEMORIES: [Memory; 4] = [Memory::Linear, Memory::Rows, Memory::Array2, Memory::Array3];
#[cfg(test)]
pub(super) const ELEMENTS: [Element; 5] =
    [Element::U8, Element::I8, Element::U16, Element::I16, Element::F32];

/// One way of reading a texture, and how far the device was from the model.
#[derive(Debug, Clone)]
pub(crate) struct FetchMode {
    /// The memory that the texture reads from.
    pub(super) memory: &'static str,
    /// Element and channels, as `u8 x4`.
    pub(super) texel: String,
    /// How neighbours make a value.
    pub(super) filter: &'static str,
    /// The value that a coordinate outside reads.
    pub(super) address: String,
    /// The unit that coordinates count.
    pub(super) coordinates: &'static str,
    /// The form of the value that a fetch returns.
    pub(super) read: &'static str,
    /// Fetches that were compared.
    pub(super) fetches: usize,
    /// Largest difference between a channel and what the model gives.
    pub(super) off: f64,
    /// Most that it may be, from what the documentation leaves open; 0 if nothing.
    pub(super) allowed: f64,
    /// The first fetch that differs by more than is allowed for it, if one does.
    pub(super) wrong: Option<String>,
}

/// All combinations, those that CUDA has not too.
pub(super) fn every_sampling() -> impl Iterator<Item = Sampling> {
    let modes = [Filter::Point, Filter::Linear].into_iter().flat_map(|filter| {
        [Address::Clamp, Address::Wrap, Address::Mirror, Address::Border].map(|address| (filter, address))
    });
    modes.flat_map(|(filter, address)| {
        [Coordinates::Pixels, Coordinates::Normalised].into_iter().flat_map(move |coordinates| {
            [Read::Element, Read::NormalisedFloat].map(|read| Sampling { filter, address, coordinates, read })
        })
    })
}

/// Compares all modes that CUDA has, of all memories and texels, and reports each when it is done.
///
/// # Errors
/// `Backend`; errors of `tell`.
pub(crate) fn compare_every_mode(gpu: &Gpu, tell: &mut dyn FnMut(&FetchMode) -> Result<()>) -> Result<()> {
    let fetcher = Fetcher::new(gpu)?;
    macro_rules! each {
        ($($number:ty),*) => { $(
            compare::<$number>(&fetcher, tell)?;
            compare::<[$number; 2]>(&fetcher, tell)?;
            compare::<[$number; 4]>(&fetcher, tell)?;
        )* };
    }
    each!(u8, i8, u16, i16, f32);
    gpu.check_dropped()
}

/// Compares all modes for one type of texel.
fn compare<T: Channels>(fetcher: &Fetcher, tell: &mut dyn FnMut(&FetchMode) -> Result<()>) -> Result<()> {
    for memory in MEMORIES {
        for sampling in every_sampling().filter(|s| s.check(memory, T::ELEMENT).is_ok()) {
            tell(&compare_mode::<T>(fetcher, memory, sampling)?)?;
        }
    }
    Ok(())
}

fn compare_mode<T: Channels>(fetcher: &Fetcher, memory: Memory, sampling: Sampling) -> Result<FetchMode> {
    let mut compared = FetchMode {
        memory: match memory {
            Memory::Linear => "linear",
            Memory::Rows => "rows",
            Memory::Array2 => "2-D array",
            Memory::Array3 => "3-D array",
        },
        texel: format!("{} x{}", T::ELEMENT, T::CHANNELS),
        filter: match sampling.filter {
            Filter::Point => "point",
            Filter::Linear => "linear",
        },
        address: sampling.address.to_string(),
        coordinates: match sampling.coordinates {
            Coordinates::Pixels => "pixels",
            Coordinates::Normalised => "normalised",
        },
        read: match sampling.read {
            Read::Element => "element",
            Read::NormalisedFloat => "normalised float",
        },
        fetches: 0,
        off: 0.0,
        allowed: 0.0,
        wrong: None,
    };
    // Odd sizes, and powers of two, for which normalised coordinates lose nothing.
    let sizes = match memory {
        Memory::Linear => [[13, 1, 1], [16, 1, 1]],
        Memory::Rows | Memory::Array2 => [[7, 5, 1], [8, 4, 1]],
        Memory::Array3 => [[5, 3, 7], [4, 2, 8]],
    };
    let dimensions = if memory == Memory::Array3 { 3 } else { 2 };
    for (is_odd, size) in [true, false].into_iter().zip(sizes) {
        let mut next = noise(7);
        let texels: Vec<T> = (0..size.iter().product()).map(|i| T::random(i, &mut next)).collect();
        let model = Model::new(memory, size, &texels, sampling);
        let device = OnDevice::new(&fetcher.stream, memory, size, &texels, sampling)?;
        for choice in [Choice::OnSteps, Choice::Anywhere] {
            let at = if memory == Memory::Linear {
                (-40..60).map(|i| [i as f32, 0.0, 0.0]).collect()
            } else {
                coordinates(size, sampling, choice)
            };
            let is_exact =
                choice == Choice::OnSteps && (sampling.coordinates == Coordinates::Pixels || !is_odd);
            let allowed = allowed(&model, sampling, is_exact, dimensions);
            compared.allowed = compared.allowed.max(allowed);
            for (at, found) in at.iter().zip(fetcher.fetch(&device.texture, &at)?) {
                let wanted = model.fetch(*at);
                let off = wanted.iter().zip(found).map(|(wanted, found)| (wanted - found).abs());
                // A number that is none differs from every number.
                let off = off.fold(0.0, |a: f64, b| if b.is_nan() { f64::INFINITY } else { a.max(b) });
                if off > allowed && compared.wrong.is_none() {
                    compared.wrong = Some(format!(
                        "{size:?}, {choice:?}, at {at:?}: {found:?} is not {wanted:?}, {off} off, where \
                         {allowed} is allowed"
                    ));
                }
                compared.off = compared.off.max(off);
                compared.fetches += 1;
            }
        }
    }
    Ok(compared)
}

/// Runs the kernels that fetch.
struct Fetcher {
    module: Module,
    stream: Stream,
}

impl Fetcher {
    fn new(gpu: &Gpu) -> Result<Self> {
        Ok(Self { module: gpu.load(PTX)?, stream: gpu.stream(Priority::Normal)? })
    }

    /// The texels at coordinates, of four channels.
    fn fetch(&self, texture: &View, at: &[[f32; 3]]) -> Result<Vec<[f64; 4]>> {
        const KERNELS: [[[&str; 3]; 2]; 3] = [
            [
                ["fetch_1d_int", "fetch_1d_int2", "fetch_1d_int4"],
                ["fetch_1d_float", "fetch_1d_float2", "fetch_1d_float4"],
            ],
            [
                ["fetch_2d_int", "fetch_2d_int2", "fetch_2d_int4"],
                ["fetch_2d_float", "fetch_2d_float2", "fetch_2d_float4"],
            ],
            [
                ["fetch_3d_int", "fetch_3d_int2", "fetch_3d_int4"],
                ["fetch_3d_float", "fetch_3d_float2", "fetch_3d_float4"],
            ],
        ];
        let dimensions = match texture.memory {
            Memory::Linear => 1,
            Memory::Rows | Memory::Array2 => 2,
            Memory::Array3 => 3,
        };
        let is_float = texture.element == Element::F32 || texture.sampling.read == Read::NormalisedFloat;
        let name = KERNELS[dimensions - 1][usize::from(is_float)][texture.channels / 2];
        // Texels that are not written keep a value that no texel has.
        Ok(if is_float {
            self.run(name, texture, at, f32::NAN)?.into_iter().map(|texel| texel.map(f64::from)).collect()
        } else {
            self.run(name, texture, at, i32::MIN)?.into_iter().map(|texel| texel.map(f64::from)).collect()
        })
    }

    fn run<N: Pod>(
        &self,
        name: &'static str,
        texture: &View,
        at: &[[f32; 3]],
        poison: N,
    ) -> Result<Vec<[N; 4]>> {
        let (gpu, stream) = (self.stream.gpu(), &self.stream);
        let mut from = gpu.alloc::<f32>("coordinates", 3 * at.len())?;
        stream.upload_now(at.as_flattened(), &mut from)?;
        let mut out = vec![poison; 4 * at.len()];
        let mut to = gpu.alloc::<N>("texels", out.len())?;
        stream.upload_now(&out, &mut to)?;
        let (handle, from_address, to_address) = (texture.handle(), from.address(), to.address());
        let count = at.len() as i32;
        let args = &mut [arg(&handle), arg(&from_address), arg(&to_address), arg(&count)];
        let kernel = self.module.kernel(name)?;
        // SAFETY: the arguments are those of `FETCH` in kernels/texture.cu; it reads 3 numbers and writes
        // 4 for each of `count` fetches, and the buffers have so many. They and the texture live until
        // the copy below has waited.
        unsafe { stream.launch(&kernel, [at.len().div_ceil(64), 1, 1], [64, 1, 1], 0, args) }?;
        stream.download_now(&to, &mut out)?;
        Ok(out.chunks_exact(4).map(|texel| [texel[0], texel[1], texel[2], texel[3]]).collect())
    }
}

/// How coordinates are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Choice {
    /// On multiples of 1/256 texel, so that the weights need no rounding, which is not documented.
    OnSteps,
    Anywhere,
}

/// Coordinates inside, at the edges and outside.
fn coordinates(size: [usize; 3], sampling: Sampling, choice: Choice) -> Vec<[f32; 3]> {
    let Sampling { filter, coordinates, .. } = sampling;
    let mut next = noise(11);
    let mut along = |length: usize, index: usize| {
        let (n, any) = (length as f32, next());
        // In texels. A point fetch keeps away from where one texel ends, which rounding could move; but
        // with pixel coordinates on steps nothing is rounded.
        let texels = match index % 8 {
            0 => [-1000.75, n + 1000.25, -0.75, n + 0.25][(any % 4) as usize],
            1 if filter == Filter::Linear => [0.0, 0.5, n - 0.5, n][(any % 4) as usize],
            1 if coordinates == Coordinates::Pixels => [0.0, 1.0, n - 1.0, n][(any % 4) as usize],
            _ => {
                let whole = (any >> 16) % (5 * length as u64);
                let fraction = match (filter, choice) {
                    (Filter::Linear, Choice::OnSteps) => (any % 256) as f32 / 256.0,
                    (Filter::Linear, Choice::Anywhere) => (any % 65536) as f32 / 65536.0,
                    (Filter::Point, Choice::OnSteps) => (16 + any % 225) as f32 / 256.0,
                    (Filter::Point, Choice::Anywhere) => (4096 + any % 57345) as f32 / 65536.0,
                };
                whole as f32 - 2.0 * n + fraction
            }
        };
        match coordinates {
            Coordinates::Pixels => texels,
            Coordinates::Normalised => texels / n,
        }
    };
    (0..256).map(|i| [along(size[0], i), along(size[1], i / 2), along(size[2], i / 3)]).collect()
}

/// Most that a fetch may differ from the model.
///
/// Element reads by point fetches are exact. Normalised floats are a quotient in f32: two units in the
/// last place are allowed. How products of two or three weights are rounded is not documented: each may
/// be half a step off, and what they are off cancels out in their sum, so that each counts for half the
/// range; what is blended may be rounded to a step before or after. Where a coordinate is not exactly on
/// a step, each axis may take the next weight.
fn allowed(model: &Model, sampling: Sampling, weights_are_exact: bool, dimensions: usize) -> f64 {
    let step = model.range() / 256.0;
    let rounded = f64::from(1 << dimensions) * step / 4.0 + step;
    match (sampling.filter, sampling.read) {
        (Filter::Point, Read::Element) => 0.0,
        (Filter::Point, Read::NormalisedFloat) => 2.0 * f64::from(f32::EPSILON),
        (Filter::Linear, _) if weights_are_exact => rounded,
        (Filter::Linear, _) => rounded + step * dimensions as f64,
    }
}

/// A texture with what it reads, which outlives it.
pub(super) struct OnDevice<T> {
    pub(super) texture: View,
    _buffer: Option<DeviceBuffer<T>>,
}

impl<T: Channels> OnDevice<T> {
    pub(super) fn new(
        stream: &Stream,
        memory: Memory,
        size: [usize; 3],
        texels: &[T],
        sampling: Sampling,
    ) -> Result<Self> {
        let gpu = stream.gpu();
        let [width, height, _] = size;
        match memory {
            Memory::Linear => {
                let mut buffer = gpu.alloc("texels", texels.len())?;
                stream.upload_now(texels, &mut buffer)?;
                // SAFETY: it is kept beside the texture.
                let texture = unsafe { View::over_linear(gpu, &buffer, sampling) }?;
                Ok(Self { texture, _buffer: Some(buffer) })
            }
            Memory::Rows => {
                let pitch = pitch_for(gpu, width * size_of::<T>())?;
                assert_eq!(pitch % size_of::<T>(), 0, "texels to a row");
                let padded = pitch / size_of::<T>();
                // Padding that would be seen: the greatest value.
                let mut rows = vec![T::random(1, &mut noise(0)); padded * height];
                for (row, texels) in rows.chunks_exact_mut(padded).zip(texels.chunks_exact(width)) {
                    row[..width].copy_from_slice(texels);
                }
                let mut buffer = gpu.alloc("texels", rows.len())?;
                stream.upload_now(&rows, &mut buffer)?;
                let size = Size::new(width, height);
                // SAFETY: it is kept beside the texture.
                let texture = unsafe { View::over_rows::<T, T>(gpu, &buffer, pitch, size, sampling) };
                Ok(Self { texture: texture?, _buffer: Some(buffer) })
            }
            Memory::Array2 | Memory::Array3 => {
                let array = match memory {
                    Memory::Array2 => Array::new_2d(gpu, Size::new(width, height)),
                    _ => Array::new_3d(gpu, size),
                };
                let array = Arc::new(array?);
                array.upload_now(texels, stream)?;
                Ok(Self { texture: View::over_array(&array, sampling)?, _buffer: None })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    macro_rules! fetches_are_what_the_model_gives {
        ($($name:ident: $number:ty;)*) => { $(
            #[test]
            fn $name() {
                let Some(gpu) = testing::gpu() else { return };
                let fetcher = Fetcher::new(&gpu).unwrap();
                let mut check = |mode: &FetchMode| {
                    assert!(mode.wrong.is_none(), "{mode:?}");
                    Ok(())
                };
                compare::<$number>(&fetcher, &mut check).unwrap();
                compare::<[$number; 2]>(&fetcher, &mut check).unwrap();
                compare::<[$number; 4]>(&fetcher, &mut check).unwrap();
                gpu.check_dropped().unwrap();
            }
        )* };
    }
    fetches_are_what_the_model_gives! {
        fetches_of_u8_are_what_the_model_gives: u8;
        fetches_of_s8_are_what_the_model_gives: i8;
        fetches_of_u16_are_what_the_model_gives: u16;
        fetches_of_s16_are_what_the_model_gives: i16;
        fetches_of_f32_are_what_the_model_gives: f32;
    }

    #[test]
    fn a_texture_keeps_its_array() {
        let Some(gpu) = testing::gpu() else { return };
        let fetcher = Fetcher::new(&gpu).unwrap();
        let array = Arc::new(Array::new_2d(&gpu, Size::new(3, 1)).unwrap());
        array.upload_now(&[5_u8, 6, 7], &fetcher.stream).unwrap();
        let texture = View::over_array(&array, Sampling::default()).unwrap();
        drop(array);
        let read = fetcher.fetch(&texture, &[[2.5, 0.5, 0.0]]).unwrap();
        assert_eq!(read, [[7.0, 0.0, 0.0, 0.0]]);
    }
}
