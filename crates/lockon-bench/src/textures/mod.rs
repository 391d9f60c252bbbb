//! Features of textures that no run uses: CUDA arrays, linear memory, filters, addressing. `kernels` times a
//! picture that is resampled by the texture unit; `textures` reads textures in every mode and compares the
//! results with a model of the unit.
//!
//! The unit works as the CUDA Programming Guide's appendix on texture fetching describes. Combinations of
//! modes that CUDA does not have are refused (`sampling`); CUDA silently turns some of them into others.

use std::fmt;

use lockon_core::error::{DeviceFault, Error, Result};
use lockon_cuda::driver::{Gpu, fault};

use super::print;
use fetch::{FetchMode, compare_every_mode};

mod array;
mod fetch;
mod model;
mod resample;
mod sampling;
mod view;

pub(crate) use array::Array;
pub(crate) use resample::Resample;
pub(crate) use sampling::{Address, Coordinates, Filter, Read, Sampling};
pub(crate) use view::View;

/// The kernels that fetch and resample, compiled from `kernels/texture.cu` in this crate.
const PTX: &str = include_str!("../../ptx/texture.ptx");

fn refused(why: impl fmt::Display) -> Error {
    fault(DeviceFault::Other(format!("texture: {why}")))
}

fn check_size(size: &[usize], max: &[usize]) -> Result<()> {
    let text = |lengths: &[usize]| lengths.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
    if size.contains(&0) {
        return Err(refused(format_args!("it is empty: {}", text(size))));
    }
    if size.iter().zip(max).any(|(size, max)| size > max) {
        return Err(refused(format_args!("{} is larger than the device's {}", text(size), text(max))));
    }
    Ok(())
}

/// Compares every mode, and prints a row for each that has all of the words; true if all of these are as the
/// model has them.
///
/// # Errors
/// `Backend`; errors of standard output.
pub(crate) fn show(wanted: &[String]) -> Result<bool> {
    let gpu = Gpu::open(0)?;
    print(&format!(
        "{}\n{:<10} {:<7} {:<7} {:<8} {:<12} {:<17} {:>8} {:>10} {:>10}\n",
        gpu.info().describe().name,
        "memory",
        "texel",
        "filter",
        "address",
        "coordinates",
        "read",
        "fetches",
        "off by",
        "allowed"
    ))?;
    let mut is_right = true;
    compare_every_mode(&gpu, &mut |mode| {
        let FetchMode { memory, texel, filter, address, coordinates, read, fetches, off, allowed, .. } = mode;
        let row = format!("{memory:<10} {texel:<7} {filter:<7} {address:<8} {coordinates:<12} {read:<17}");
        if !wanted.iter().all(|word| row.contains(word)) {
            return Ok(());
        }
        print(&format!("{row} {fetches:>8} {off:>10.6} {allowed:>10.6}\n"))?;
        if let Some(wrong) = &mode.wrong {
            is_right = false;
            print(&format!("  {wrong}\n"))?;
        }
        Ok(())
    })?;
    Ok(is_right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_beyond_the_device_are_refused() {
        let said = |size: &[usize]| check_size(size, &[16, 8, 4]).map_err(|error| error.to_string());
        assert_eq!(said(&[16, 8, 4]), Ok(()));
        assert_eq!(said(&[16, 9, 4]), Err("cuda: texture: 16x9x4 is larger than the device's 16x8x4".into()));
        assert_eq!(said(&[16, 0, 4]), Err("cuda: texture: it is empty: 16x0x4".into()));
    }
}
