//! How a texture is read: its texels, and the valid combinations of modes.

use std::fmt;

use cudarc::driver::sys::{self, CUaddress_mode, CUarray_format, CUfilter_mode};

use lockon_core::error::Result;
use lockon_cuda::driver::{Pod, Texture};

use super::refused;

/// The type of one channel of a texel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    U8,
    I8,
    U16,
    I16,
    F32,
}

impl Element {
    pub(super) fn format(self) -> CUarray_format {
        match self {
            Self::U8 => CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8,
            Self::I8 => CUarray_format::CU_AD_FORMAT_SIGNED_INT8,
            Self::U16 => CUarray_format::CU_AD_FORMAT_UNSIGNED_INT16,
            Self::I16 => CUarray_format::CU_AD_FORMAT_SIGNED_INT16,
            Self::F32 => CUarray_format::CU_AD_FORMAT_FLOAT,
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::U8 => "u8",
            Self::I8 => "s8",
            Self::U16 => "u16",
            Self::I16 => "s16",
            Self::F32 => "f32",
        })
    }
}

/// 1, 2 or 4 channels of an [`Element`]; textures do not support 3.
pub(crate) trait Texel: Pod {
    const ELEMENT: Element;
    const CHANNELS: usize;
}

macro_rules! texels {
    ($($number:ty: $element:ident),*) => { $(
        impl Texel for $number {
            const ELEMENT: Element = Element::$element;
            const CHANNELS: usize = 1;
        }
        impl Texel for [$number; 2] {
            const ELEMENT: Element = Element::$element;
            const CHANNELS: usize = 2;
        }
        impl Texel for [$number; 4] {
            const ELEMENT: Element = Element::$element;
            const CHANNELS: usize = 4;
        }
    )* };
}
texels!(u8: U8, i8: I8, u16: U16, i16: I16, f32: F32);

/// How a value is interpolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filter {
    /// The texel that the coordinate lies in.
    Point,
    /// The texels around it, weighted along each axis in steps of 1/256.
    Linear,
}

/// The value read outside of the texture, along every axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Address {
    /// The texel at the edge.
    Clamp,
    /// The texture repeated.
    Wrap,
    /// The texture repeated, every other copy mirrored.
    Mirror,
    /// 0 in every channel.
    Border,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clamp => "clamp",
            Self::Wrap => "wrap",
            Self::Mirror => "mirror",
            Self::Border => "border",
        })
    }
}

/// The unit of a coordinate. Texel `i` of N reaches from `i` to `i + 1` pixels, its centre lies at `i + 0.5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coordinates {
    /// Texels: 0 to N.
    Pixels,
    /// Fractions of the size: 0 to 1.
    Normalised,
}

/// The form of the value that a fetch returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// The number itself; integers are widened to 32 bits.
    Element,
    /// 0 to 1 for unsigned integers, -1 to 1 for signed ones: the two smallest of these both give -1.
    NormalisedFloat,
}

/// How a texture is read. The default, as for frames: texel by texel, with edges repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sampling {
    pub(crate) filter: Filter,
    pub(crate) address: Address,
    pub(crate) coordinates: Coordinates,
    pub(crate) read: Read,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            filter: Filter::Point,
            address: Address::Clamp,
            coordinates: Coordinates::Pixels,
            read: Read::Element,
        }
    }
}

/// The memory that a texture reads from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// A buffer, read by index with `tex1Dfetch`. An index outside reads 0.
    Linear,
    /// Rows of a buffer.
    Rows,
    /// A 2-D CUDA array; its memory layout is not documented.
    Array2,
    /// A 3-D CUDA array.
    Array3,
}

impl Sampling {
    /// Refuses modes that CUDA lacks for that memory and those elements. Uses no device.
    pub(crate) fn check(self, memory: Memory, element: Element) -> Result<()> {
        let Self { filter, address, coordinates, read } = self;
        let refusal = match (memory, element) {
            (Memory::Linear, _) if filter == Filter::Linear => {
                "linear memory is read by index, without a linear filter".into()
            }
            (Memory::Linear, _) if coordinates == Coordinates::Normalised => {
                "linear memory is read by index, without normalised coordinates".into()
            }
            (Memory::Linear, _) if address != Address::Border => {
                format!("linear memory has no {address} addressing: an index outside reads 0 (border)")
            }
            _ if coordinates == Coordinates::Pixels && matches!(address, Address::Wrap | Address::Mirror) => {
                format!(
                    "{address} addressing needs normalised coordinates (CUDA would clamp pixel coordinates)"
                )
            }
            (_, Element::F32) if read == Read::NormalisedFloat => {
                "f32 texels have no normalised-float reads: they are read as they are".into()
            }
            (_, integer) if filter == Filter::Linear && read == Read::Element && integer != Element::F32 => {
                format!("a linear filter of {integer} texels needs normalised-float reads")
            }
            _ => return Ok(()),
        };
        Err(refused(refusal))
    }

    /// Returns the driver's description for `element`.
    pub(super) fn describe(self, element: Element) -> sys::CUDA_TEXTURE_DESC {
        let address = match self.address {
            Address::Clamp => CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP,
            Address::Wrap => CUaddress_mode::CU_TR_ADDRESS_MODE_WRAP,
            Address::Mirror => CUaddress_mode::CU_TR_ADDRESS_MODE_MIRROR,
            Address::Border => CUaddress_mode::CU_TR_ADDRESS_MODE_BORDER,
        };
        let filter = match self.filter {
            Filter::Point => CUfilter_mode::CU_TR_FILTER_MODE_POINT,
            Filter::Linear => CUfilter_mode::CU_TR_FILTER_MODE_LINEAR,
        };
        let mut flags = 0;
        // Floats are always read unchanged.
        if self.read == Read::Element && element != Element::F32 {
            flags |= sys::CU_TRSF_READ_AS_INTEGER;
        }
        if self.coordinates == Coordinates::Normalised {
            flags |= sys::CU_TRSF_NORMALIZED_COORDINATES;
        }
        Texture::sampling(address, filter, flags)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fetch::{ELEMENTS, MEMORIES, every_sampling};
    use super::*;

    #[test]
    fn modes_are_refused_by_name() {
        let default = Sampling::default();
        let border = Sampling { address: Address::Border, ..default };
        let normalised = Sampling { coordinates: Coordinates::Normalised, ..default };
        let linear = Sampling { filter: Filter::Linear, ..default };
        let cases = [
            (
                Sampling { filter: Filter::Linear, ..border },
                Memory::Linear,
                Element::F32,
                "linear memory is read by index, without a linear filter",
            ),
            (
                Sampling { coordinates: Coordinates::Normalised, ..border },
                Memory::Linear,
                Element::U8,
                "linear memory is read by index, without normalised coordinates",
            ),
            (
                default,
                Memory::Linear,
                Element::U8,
                "linear memory has no clamp addressing: an index outside reads 0 (border)",
            ),
            (
                Sampling { address: Address::Wrap, ..default },
                Memory::Linear,
                Element::U8,
                "linear memory has no wrap addressing: an index outside reads 0 (border)",
            ),
            (
                Sampling { address: Address::Mirror, ..default },
                Memory::Linear,
                Element::U8,
                "linear memory has no mirror addressing: an index outside reads 0 (border)",
            ),
            (
                Sampling { address: Address::Wrap, ..default },
                Memory::Rows,
                Element::U8,
                "wrap addressing needs normalised coordinates (CUDA would clamp pixel coordinates)",
            ),
            (
                Sampling { address: Address::Mirror, ..default },
                Memory::Array3,
                Element::F32,
                "mirror addressing needs normalised coordinates (CUDA would clamp pixel coordinates)",
            ),
            (
                Sampling { read: Read::NormalisedFloat, ..normalised },
                Memory::Array2,
                Element::F32,
                "f32 texels have no normalised-float reads: they are read as they are",
            ),
            (linear, Memory::Rows, Element::U8, "a linear filter of u8 texels needs normalised-float reads"),
            (
                linear,
                Memory::Array2,
                Element::I8,
                "a linear filter of s8 texels needs normalised-float reads",
            ),
            (
                linear,
                Memory::Array2,
                Element::U16,
                "a linear filter of u16 texels needs normalised-float reads",
            ),
            (
                linear,
                Memory::Array3,
                Element::I16,
                "a linear filter of s16 texels needs normalised-float reads",
            ),
        ];
        for (sampling, memory, element, why) in cases {
            let error = sampling.check(memory, element).expect_err(why);
            assert_eq!(error.to_string(), format!("cuda: texture: {why}"));
        }
    }

    #[test]
    fn modes_that_go_together_are_counted() {
        let allowed = |memory, element| every_sampling().filter(|s| s.check(memory, element).is_ok()).count();
        for element in ELEMENTS {
            // Integers: point with both reads, linear with normalised floats; f32: both filters with element
            // reads. Each with clamp and border in both coordinates, wrap and mirror in normalised ones.
            let (by_index, by_coordinate) = if element == Element::F32 { (1, 2 * 6) } else { (2, 3 * 6) };
            for memory in MEMORIES {
                let count = if memory == Memory::Linear { by_index } else { by_coordinate };
                assert_eq!(allowed(memory, element), count, "{memory:?} {element}");
            }
        }
    }
}
