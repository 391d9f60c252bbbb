//! Textures over linear memory and over rows, in all modes. Those over arrays are in `array.rs`.

#![expect(
    unsafe_code,
    reason = "the driver's interface is C: descriptions without types, handles without owners"
)]

use std::any::Any;
use std::ffi::c_uint;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresourcetype};

use lockon_core::error::Result;
use lockon_core::frame::Size;
use lockon_cuda::driver::{Attribute, DeviceBuffer, Gpu, Pod, Texture};

use super::check_size;
use super::sampling::{Element, Memory, Sampling, Texel};

/// A texture with what it is made of.
///
/// It keeps its array alive, but not its buffer: the caller that makes one over a buffer keeps it
/// ([`View::over_rows`], [`View::over_linear`]).
pub(crate) struct View {
    texture: Texture,
    /// Width, height, depth; 1 along axes that the memory has not.
    pub(super) size: [usize; 3],
    pub(super) memory: Memory,
    pub(super) element: Element,
    pub(super) channels: usize,
    pub(super) sampling: Sampling,
    /// Dropped after the texture.
    _array: Option<Arc<dyn Any + Send + Sync>>,
}

impl View {
    /// A view of `size.height` rows of `size.width` texels, at the start of the buffer, each `pitch` bytes
    /// after the one before: `tex2D<T>(texture, x, y)`.
    ///
    /// # Safety
    /// The buffer lives whenever a kernel is launched that is given this texture.
    ///
    /// # Errors
    /// `Other` if the driver refuses address, pitch or size, or the modes do not go together.
    ///
    /// # Panics
    /// If the buffer is smaller than that.
    pub(crate) unsafe fn over_rows<T: Texel, B: Pod>(
        gpu: &Gpu,
        buffer: &DeviceBuffer<B>,
        pitch: usize,
        size: Size,
        sampling: Sampling,
    ) -> Result<Self> {
        sampling.check(Memory::Rows, T::ELEMENT)?;
        let bytes = buffer.len() * size_of::<B>();
        let needed = (size.height - 1) * pitch + size.width * size_of::<T>();
        assert!(needed <= bytes, "a texture of {needed} bytes over {bytes}");
        let mut resource = Texture::resource(CUresourcetype::CU_RESOURCE_TYPE_PITCH2D);
        resource.res.pitch2D = sys::CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_4 {
            devPtr: buffer.address(),
            format: T::ELEMENT.format(),
            numChannels: T::CHANNELS as c_uint,
            width: size.width,
            height: size.height,
            pitchInBytes: pitch,
        };
        // SAFETY: the rows lie in the buffer, as asserted, which the caller keeps.
        unsafe { Self::new::<T>(gpu, Memory::Rows, &resource, [size.width, size.height, 1], sampling, None) }
    }

    /// A view of a whole buffer: `tex1Dfetch<T>(texture, i)`. Only the form of the value can be chosen.
    ///
    /// # Safety
    /// The buffer lives whenever a kernel is launched that is given this texture.
    ///
    /// # Errors
    /// `Other` if there are more elements than the device's textures can have, none, or it has no such modes.
    pub(super) unsafe fn over_linear<T: Texel>(
        gpu: &Gpu,
        buffer: &DeviceBuffer<T>,
        sampling: Sampling,
    ) -> Result<Self> {
        sampling.check(Memory::Linear, T::ELEMENT)?;
        let max = gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH)?;
        check_size(&[buffer.len()], &[max])?;
        let mut resource = Texture::resource(CUresourcetype::CU_RESOURCE_TYPE_LINEAR);
        resource.res.linear = sys::CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_3 {
            devPtr: buffer.address(),
            format: T::ELEMENT.format(),
            numChannels: T::CHANNELS as c_uint,
            sizeInBytes: buffer.len() * size_of::<T>(),
        };
        // SAFETY: it is the whole buffer, which the caller keeps.
        unsafe { Self::new::<T>(gpu, Memory::Linear, &resource, [buffer.len(), 1, 1], sampling, None) }
    }

    /// # Safety
    /// The memory that `resource` describes has that size, and lives whenever a kernel is launched that is
    /// given this texture.
    pub(super) unsafe fn new<T: Texel>(
        gpu: &Gpu,
        memory: Memory,
        resource: &sys::CUDA_RESOURCE_DESC,
        size: [usize; 3],
        sampling: Sampling,
        array: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Self> {
        // SAFETY: all of both descriptions is set; the memory is the caller's.
        let texture = unsafe { Texture::new(gpu, resource, &sampling.describe(T::ELEMENT)) }?;
        let (element, channels) = (T::ELEMENT, T::CHANNELS);
        Ok(Self { texture, size, memory, element, channels, sampling, _array: array })
    }

    /// Returns the handle that a kernel takes as `cudaTextureObject_t`.
    pub(super) fn handle(&self) -> u64 {
        self.texture.handle()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Array;
    use super::super::sampling::Address;
    use super::*;
    use crate::testing;
    use lockon_cuda::driver::pitch_for;

    #[test]
    fn a_texture_is_refused_before_the_driver_is_asked() {
        let Some(gpu) = testing::gpu() else { return };
        let pitch = pitch_for(&gpu, 7).unwrap();
        let buffer = gpu.alloc::<u8>("rows", 8 * pitch).unwrap();
        let wrap = Sampling { address: Address::Wrap, ..Sampling::default() };
        // SAFETY: no kernel gets it.
        assert!(unsafe { View::over_linear(&gpu, &buffer, wrap) }.is_err());
        assert!(Array::<u8>::new_2d(&gpu, Size::new(0, 5)).is_err());
        assert!(Array::<u8>::new_3d(&gpu, [1 << 20, 1, 1]).is_err());
    }
}
