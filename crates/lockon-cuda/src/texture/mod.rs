//! Texture objects: read-only views of device memory through the texture unit, which finds the texel of a
//! coordinate, treats what lies outside, and blends neighbours.
//!
//! The unit works as the CUDA Programming Guide's appendix on texture fetching describes. Combinations of
//! modes that CUDA does not have are refused (`sampling`); CUDA silently turns some of them into others. Runs
//! read rows, point by point; all other modes are in `modes`.
//!
//! A texture sees what was written to its memory by earlier launches and copies of the stream, not by its own
//! launch.

#![expect(
    unsafe_code,
    reason = "the driver's interface is C: descriptions without types, handles without owners"
)]

use std::any::Any;
use std::ffi::c_uint;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresourcetype};

use lockon_core::error::{DeviceFault, Result};
use lockon_core::frame::Size;

use super::driver::{DeviceBuffer, Gpu, Pod, failed, fault};

#[cfg(any(test, feature = "bench"))]
pub(crate) mod modes;
mod sampling;

pub(crate) use sampling::{Address, Coordinates, Element, Filter, Memory, Read, Sampling, Texel};

fn refused(why: impl fmt::Display) -> lockon_core::error::Error {
    fault(DeviceFault::Other(format!("texture: {why}")))
}

/// Least bytes from row to row that textures accept for rows of `width_bytes`.
pub(crate) fn pitch_for(gpu: &Gpu, width_bytes: usize) -> Result<usize> {
    let alignment = gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT)?;
    Ok(width_bytes.next_multiple_of(alignment))
}

/// A texture object. It is destroyed when dropped, which waits for the work on the device.
///
/// A texture keeps its array alive, but not its buffer: the caller that makes a texture over a buffer keeps
/// it ([`Texture::over_rows`], [`Texture::over_linear`]).
pub(crate) struct Texture {
    gpu: Gpu,
    object: sys::CUtexObject,
    /// Width, height, depth; 1 along axes that the memory has not.
    size: [usize; 3],
    memory: Memory,
    element: Element,
    channels: usize,
    sampling: Sampling,
    _array: Option<Arc<dyn Any + Send + Sync>>,
}

impl Texture {
    /// A view of `size.height` rows of `size.width` texels, the first at element `from` of the buffer, each
    /// `pitch` bytes after the one before: `tex2D<T>(texture, x, y)`.
    ///
    /// # Safety
    /// The buffer lives whenever a kernel is launched that is given this texture.
    ///
    /// # Errors
    /// `FrameTooLarge`; `Other` if the first texel or the pitch is not aligned as the device wants it
    /// ([`pitch_for`]), or the modes do not go together.
    ///
    /// # Panics
    /// If the buffer is smaller than that.
    pub(crate) unsafe fn over_rows<T: Texel, B: Pod>(
        gpu: &Gpu,
        buffer: &DeviceBuffer<B>,
        from: usize,
        pitch: usize,
        size: Size,
        sampling: Sampling,
    ) -> Result<Self> {
        sampling.check(Memory::Rows, T::ELEMENT)?;
        let max = Size::new(
            gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH)?,
            gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT)?,
        );
        if !size.fits_in(max) {
            return Err(fault(DeviceFault::FrameTooLarge { frame: size, max }));
        }
        let address = buffer.address_of(from);
        let width_bytes = size.width * size_of::<T>();
        check_rows(
            address,
            pitch,
            size,
            width_bytes,
            Alignment {
                address: gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)?,
                pitch: gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT)?,
                max_pitch: gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH)?,
            },
        )?;
        let bytes = (buffer.len() - from) * size_of::<B>();
        let needed = (size.height - 1) * pitch + width_bytes;
        assert!(needed <= bytes, "a texture of {needed} bytes over {bytes}");
        let mut resource = resource(CUresourcetype::CU_RESOURCE_TYPE_PITCH2D);
        resource.res.pitch2D = sys::CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_4 {
            devPtr: address,
            format: T::ELEMENT.format(),
            numChannels: T::CHANNELS as c_uint,
            width: size.width,
            height: size.height,
            pitchInBytes: pitch,
        };
        Self::new::<T>(gpu, Memory::Rows, &resource, [size.width, size.height, 1], sampling, None)
    }

    /// A view of a whole buffer: `tex1Dfetch<T>(texture, i)`. Of the modes there is only how to read.
    ///
    /// # Safety
    /// The buffer lives whenever a kernel is launched that is given this texture.
    ///
    /// # Errors
    /// `Other` if there are more elements than the device's textures can have, none, or the modes are not to
    /// be had.
    pub(crate) unsafe fn over_linear<T: Texel>(
        gpu: &Gpu,
        buffer: &DeviceBuffer<T>,
        sampling: Sampling,
    ) -> Result<Self> {
        sampling.check(Memory::Linear, T::ELEMENT)?;
        let max = gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH)?;
        check_size(&[buffer.len()], &[max])?;
        let mut resource = resource(CUresourcetype::CU_RESOURCE_TYPE_LINEAR);
        resource.res.linear = sys::CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_3 {
            devPtr: buffer.address(),
            format: T::ELEMENT.format(),
            numChannels: T::CHANNELS as c_uint,
            sizeInBytes: buffer.len() * size_of::<T>(),
        };
        Self::new::<T>(gpu, Memory::Linear, &resource, [buffer.len(), 1, 1], sampling, None)
    }

    fn new<T: Texel>(
        gpu: &Gpu,
        memory: Memory,
        resource: &sys::CUDA_RESOURCE_DESC,
        size: [usize; 3],
        sampling: Sampling,
        array: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Self> {
        gpu.bind()?;
        let description = sampling.describe(T::ELEMENT);
        let mut object = 0;
        // SAFETY: the context is bound. `resource` names memory that was live and of that size when the
        // caller looked (`over_rows`, `over_linear` and `over_array` check it), and all of both descriptions
        // is set.
        unsafe {
            sys::cuTexObjectCreate(&raw mut object, resource, &raw const description, std::ptr::null())
        }
        .result()
        .map_err(failed("creating a texture"))?;
        let (element, channels) = (T::ELEMENT, T::CHANNELS);
        Ok(Self { gpu: gpu.clone(), object, size, memory, element, channels, sampling, _array: array })
    }

    /// Returns the handle that a kernel takes as `cudaTextureObject_t`.
    pub(crate) fn handle(&self) -> u64 {
        self.object
    }
}

impl Drop for Texture {
    fn drop(&mut self) {
        // SAFETY: made by `cuTexObjectCreate`, and no other code destroys it; kernels that could read it are
        // done. It is destroyed even if the context is lost.
        self.gpu.free(|| unsafe {
            let done = sys::cuCtxSynchronize().result();
            sys::cuTexObjectDestroy(self.object).result().and(done)
        });
    }
}

/// The alignment that a device requires of rows that a texture reads, in bytes.
#[derive(Debug, Clone, Copy)]
struct Alignment {
    address: usize,
    pitch: usize,
    max_pitch: usize,
}

fn check_rows(address: u64, pitch: usize, size: Size, width_bytes: usize, wanted: Alignment) -> Result<()> {
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
    if pitch < width_bytes {
        return Err(refused(format_args!(
            "its pitch of {pitch} bytes is less than its rows of {width_bytes}"
        )));
    }
    if pitch > wanted.max_pitch {
        let max = wanted.max_pitch;
        return Err(refused(format_args!("its pitch of {pitch} bytes is more than the device's {max}")));
    }
    Ok(())
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

/// A description of memory, all of it 0 but the kind.
fn resource(kind: CUresourcetype) -> sys::CUDA_RESOURCE_DESC {
    let reserved = sys::CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_5 { reserved: [0; 32] };
    sys::CUDA_RESOURCE_DESC {
        resType: kind,
        res: sys::CUDA_RESOURCE_DESC_st__bindgen_ty_1 { reserved },
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use crate::texture::modes::Array;

    #[test]
    fn rows_that_a_device_cannot_read_are_refused() {
        let wanted = Alignment { address: 512, pitch: 32, max_pitch: 4096 };
        let said = |address, pitch, size: Size| {
            check_rows(address, pitch, size, size.width, wanted).map_err(|error| error.to_string())
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
    fn sizes_beyond_the_device_are_refused() {
        let said = |size: &[usize]| check_size(size, &[16, 8, 4]).map_err(|error| error.to_string());
        assert_eq!(said(&[16, 8, 4]), Ok(()));
        assert_eq!(said(&[16, 9, 4]), Err("cuda: texture: 16x9x4 is larger than the device's 16x8x4".into()));
        assert_eq!(said(&[16, 0, 4]), Err("cuda: texture: it is empty: 16x0x4".into()));
    }

    #[test]
    fn a_texture_is_refused_before_the_driver_is_asked() {
        let Some(gpu) = testing::gpu() else { return };
        let pitch = pitch_for(&gpu, 7).unwrap();
        let buffer = gpu.alloc::<u8>("rows", 8 * pitch).unwrap();
        let said = |from, pitch, size| {
            // SAFETY: no kernel gets it.
            let texture =
                unsafe { Texture::over_rows::<u8, _>(&gpu, &buffer, from, pitch, size, Sampling::default()) };
            texture.err().map(|error| error.to_string()).unwrap_or_default()
        };
        let size = Size::new(7, 5);
        assert_eq!(said(0, pitch, size), "");
        assert!(said(1, pitch, size).contains("its rows begin at"), "{}", said(1, pitch, size));
        assert!(said(0, pitch - 1, size).contains("its pitch of"), "{}", said(0, pitch - 1, size));
        assert!(said(0, pitch, Size::new(1 << 30, 5)).contains("are larger than"));
        let wrap = Sampling { address: Address::Wrap, ..Sampling::default() };
        // SAFETY: no kernel gets it.
        assert!(unsafe { Texture::over_linear(&gpu, &buffer, wrap) }.is_err());
        assert!(Array::<u8>::new_2d(&gpu, Size::new(0, 5)).is_err());
        assert!(Array::<u8>::new_3d(&gpu, [1 << 20, 1, 1]).is_err());
    }
}
