//! Frames and templates as textures: rows of bytes, read texel by texel at pixel coordinates, the edge
//! repeated. `lockon-bench` has the other modes of textures, which no run needs.

#![expect(
    unsafe_code,
    reason = "the driver's interface is C: descriptions without types, handles without owners"
)]

use std::fmt;

use cudarc::driver::sys::{self, CUaddress_mode, CUarray_format, CUfilter_mode, CUresourcetype};

use lockon_core::error::{DeviceFault, Result};
use lockon_core::frame::Size;

use super::driver::{Attribute, DeviceBuffer, Gpu, Texture, fault};

/// Integers as they are, by the pixel that a coordinate lies in.
const SAMPLING: sys::CUDA_TEXTURE_DESC = Texture::sampling(
    CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP,
    CUfilter_mode::CU_TR_FILTER_MODE_POINT,
    sys::CU_TRSF_READ_AS_INTEGER,
);

fn refused(why: impl fmt::Display) -> lockon_core::error::Error {
    fault(DeviceFault::Other(format!("texture: {why}")))
}

/// A view of `size.height` rows of `size.width` bytes, the first at byte `from` of the buffer, each `pitch`
/// bytes after the one before: `tex2D<unsigned char>(texture, x, y)`.
///
/// # Safety
/// The buffer lives whenever a kernel is launched that is given this texture.
///
/// # Errors
/// `FrameTooLarge`; `Other` if the first byte or the pitch is not aligned as the device requires
/// ([`super::driver::pitch_for`]).
///
/// # Panics
/// If the buffer is smaller than that.
pub(super) unsafe fn over_rows(
    gpu: &Gpu,
    buffer: &DeviceBuffer<u8>,
    from: usize,
    pitch: usize,
    size: Size,
) -> Result<Texture> {
    let max = Size::new(
        gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH)?,
        gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT)?,
    );
    if !size.fits_in(max) {
        return Err(fault(DeviceFault::FrameTooLarge { frame: size, max }));
    }
    let address = buffer.address_of(from);
    let wanted = Alignment {
        address: gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)?,
        pitch: gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT)?,
        max_pitch: gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH)?,
    };
    check_rows(address, pitch, size, wanted)?;
    let (room, needed) = (buffer.len() - from, (size.height - 1) * pitch + size.width);
    assert!(needed <= room, "a texture of {needed} bytes over {room}");
    let mut resource = Texture::resource(CUresourcetype::CU_RESOURCE_TYPE_PITCH2D);
    resource.res.pitch2D = sys::CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_4 {
        devPtr: address,
        format: CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8,
        numChannels: 1,
        width: size.width,
        height: size.height,
        pitchInBytes: pitch,
    };
    // SAFETY: both descriptions are set; the rows lie in the buffer, as asserted, which the caller keeps.
    unsafe { Texture::new(gpu, &resource, &SAMPLING) }
}

/// The alignment that a device requires of rows that a texture reads, in bytes.
#[derive(Debug, Clone, Copy)]
struct Alignment {
    address: usize,
    pitch: usize,
    max_pitch: usize,
}

fn check_rows(address: u64, pitch: usize, size: Size, wanted: Alignment) -> Result<()> {
    if size.area() == 0 {
        return Err(refused(format_args!("it is empty: {size}")));
    }
    if !address.is_multiple_of(wanted.address as u64) {
        let by = wanted.address;
        return Err(refused(format_args!("its rows begin at {address:#x}, which is no multiple of {by}")));
    }
    if !pitch.is_multiple_of(wanted.pitch) {
        let by = wanted.pitch;
        return Err(refused(format_args!("its pitch of {pitch} bytes is no multiple of {by}")));
    }
    if pitch < size.width {
        let width = size.width;
        return Err(refused(format_args!("its pitch of {pitch} bytes is less than its rows of {width}")));
    }
    if pitch > wanted.max_pitch {
        let max = wanted.max_pitch;
        return Err(refused(format_args!("its pitch of {pitch} bytes is more than the device's {max}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::pitch_for;
    use crate::testing;

    #[test]
    fn rows_that_a_device_cannot_read_are_refused() {
        let wanted = Alignment { address: 512, pitch: 32, max_pitch: 4096 };
        let said = |address, pitch, size: Size| {
            check_rows(address, pitch, size, wanted).map_err(|error| error.to_string())
        };
        let size = Size::new(60, 5);
        assert_eq!(said(0x1000, 64, size), Ok(()));
        let refusals = [
            (said(0x1000, 64, Size::new(0, 5)), "it is empty: 0x5"),
            (said(0x1100, 64, size), "its rows begin at 0x1100, which is no multiple of 512"),
            (said(0x1000, 60, size), "its pitch of 60 bytes is no multiple of 32"),
            (said(0x1000, 32, size), "its pitch of 32 bytes is less than its rows of 60"),
            (said(0x1000, 8192, size), "its pitch of 8192 bytes is more than the device's 4096"),
        ];
        for (said, why) in refusals {
            assert_eq!(said, Err(format!("cuda: texture: {why}")));
        }
    }

    #[test]
    fn a_texture_is_refused_before_the_driver_is_asked() {
        let Some(gpu) = testing::gpu() else { return };
        let pitch = pitch_for(&gpu, 7).unwrap();
        let buffer = gpu.alloc::<u8>("rows", 8 * pitch).unwrap();
        let said = |from, pitch, size| {
            // SAFETY: no kernel gets it.
            let texture = unsafe { over_rows(&gpu, &buffer, from, pitch, size) };
            texture.err().map(|error| error.to_string()).unwrap_or_default()
        };
        let size = Size::new(7, 5);
        assert_eq!(said(0, pitch, size), "");
        assert!(said(1, pitch, size).contains("its rows begin at"), "{}", said(1, pitch, size));
        assert!(said(0, pitch - 1, size).contains("its pitch of"), "{}", said(0, pitch - 1, size));
        assert!(said(0, pitch, Size::new(1 << 30, 5)).contains("are larger than"));
    }
}
