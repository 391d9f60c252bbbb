//! Features of textures that no run uses: CUDA arrays, linear memory, filters, addressing. `lockon bench
//! kernels` resamples a picture; `examples/texture_modes.rs` reads textures in every mode and compares the
//! results with a model of the unit.

mod array;
mod fetch;
mod model;
mod resample;

pub(crate) use array::Array;
#[cfg(feature = "bench")]
pub use fetch::FetchMode;
#[cfg(feature = "bench")]
pub(crate) use fetch::compare_every_mode;
#[cfg(test)]
pub(crate) use fetch::{ELEMENTS, MEMORIES, every_sampling};
pub(crate) use resample::Resample;

/// The kernels that fetch and resample.
const PTX: &str = include_str!("../../../../../kernels/ptx/texture.ptx");
