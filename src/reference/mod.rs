//! Obviously correct NCC and adaptive threshold: the definition that every backend is tested against.
//!
//! No speed, no sharing of work between pixels: each output is computed from its inputs as the formula says.

pub mod ncc;
pub mod threshold;
