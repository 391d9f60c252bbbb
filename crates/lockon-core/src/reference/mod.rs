//! Obviously correct NCC, adaptive threshold and objects: the definition that every backend is tested
//! against.
//!
//! No speed, no sharing of work between pixels: each output is computed from its inputs as the formula says.

pub mod ncc;
pub mod objects;
pub mod surface;
pub mod threshold;

use crate::frame::{Plane, Size};

/// A picture to check and time searches on: smooth blobs and noise, nowhere flat, the same every time.
pub fn picture(size: Size) -> Plane {
    let mut random = random();
    let data = (0..size.area()).map(|i| {
        let (x, y) = ((i % size.width) as f64, (i / size.width) as f64);
        let blobs = 60.0 * (x / 17.0).sin() * (y / 23.0).cos() + 30.0 * ((x + 2.0 * y) / 41.0).sin();
        (120.0 + blobs + f64::from(random() >> 27)) as u8
    });
    Plane::from_vec(data.collect(), size)
}

/// Noise on every scale, the coarser the stronger, as nature has it: the same picture every time.
pub fn natural(frame: Size) -> Plane {
    let mut sum = vec![128.0_f32; frame.area()];
    let mut random = random();
    let mut noise = || (random() >> 16) as f32 / 32_768.0 - 1.0;
    for (cell, strength) in [(64, 40.0), (16, 24.0), (4, 14.0), (1, 9.0)] {
        let across = frame.width / cell + 2;
        let knots: Vec<f32> = (0..across * (frame.height / cell + 2)).map(|_| noise()).collect();
        for (index, value) in sum.iter_mut().enumerate() {
            let (x, y) = (index % frame.width, index / frame.width);
            let (part_x, part_y) = ((x % cell) as f32 / cell as f32, (y % cell) as f32 / cell as f32);
            let knot = |i: usize, j: usize| knots[(y / cell + j) * across + x / cell + i];
            let line = |j: usize| knot(0, j) * (1.0 - part_x) + knot(1, j) * part_x;
            *value += strength * (line(0) * (1.0 - part_y) + line(1) * part_y);
        }
    }
    Plane::from_vec(sum.into_iter().map(|value| value as u8).collect(), frame)
}

/// Random numbers, the same every time. Only their upper bits look random.
fn random() -> impl FnMut() -> u32 {
    let mut state = 1_u32;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state
    }
}
