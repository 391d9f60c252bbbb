//! Obviously correct NCC and adaptive threshold: the definition that every backend is tested against.
//!
//! No speed, no sharing of work between pixels: each output is computed from its inputs as the formula says.

pub mod ncc;
pub mod surface;
pub mod threshold;

use crate::frame::{Plane, Size};

/// A picture to check and time searches on: smooth blobs and noise, nowhere flat, the same every time.
pub fn picture(size: Size) -> Plane {
    let mut state = 1_u32;
    let data = (0..size.area()).map(|i| {
        let (x, y) = ((i % size.width) as f64, (i / size.width) as f64);
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let blobs = 60.0 * (x / 17.0).sin() * (y / 23.0).cos() + 30.0 * ((x + 2.0 * y) / 41.0).sin();
        (120.0 + blobs + f64::from(state >> 27)) as u8
    });
    Plane::from_vec(data.collect(), size)
}
