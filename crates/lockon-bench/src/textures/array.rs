//! CUDA arrays: memory in an order that only the texture unit knows.

#![expect(
    unsafe_code,
    reason = "the driver's interface is C: descriptions without types, handles without owners"
)]

use std::any::Any;
use std::ffi::c_uint;
use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUmemorytype, CUresourcetype};

use lockon_core::error::Result;
use lockon_core::frame::Size;
use lockon_cuda::driver::{Attribute, Gpu, Stream, Texture, failed, hold_captures_up};

use super::check_size;
use super::sampling::{Memory, Sampling, Texel};
use super::view::View;

/// A 2-D or 3-D CUDA array. It is freed when dropped, which waits for the work on the device.
pub(crate) struct Array<T> {
    gpu: Gpu,
    handle: sys::CUarray,
    /// Width, height, and depth, which is 0 if there are two dimensions.
    size: [usize; 3],
    of: PhantomData<T>,
}

// SAFETY: the handle names an array of the context, and is not bound to a thread.
unsafe impl<T: Texel> Send for Array<T> {}
// SAFETY: what can be done with a shared array (`upload_now`, a texture over it) is done by the driver, which
// may be called by many threads at once.
unsafe impl<T: Texel> Sync for Array<T> {}

impl<T: Texel> Array<T> {
    /// Room for a picture.
    ///
    /// # Errors
    /// `Other` if it is empty, or larger than the device's textures, or there is no room.
    pub(crate) fn new_2d(gpu: &Gpu, size: Size) -> Result<Self> {
        let max = [
            gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH)?,
            gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT)?,
        ];
        check_size(&[size.width, size.height], &max)?;
        Self::new(gpu, [size.width, size.height, 0])
    }

    /// Room for `width x height x depth` texels.
    ///
    /// # Errors
    /// As [`Array::new_2d`].
    pub(crate) fn new_3d(gpu: &Gpu, size: [usize; 3]) -> Result<Self> {
        let max = [
            gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH)?,
            gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT)?,
            gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH)?,
        ];
        check_size(&size, &max)?;
        Self::new(gpu, size)
    }

    fn new(gpu: &Gpu, size: [usize; 3]) -> Result<Self> {
        gpu.bind()?;
        let _captures_wait = hold_captures_up();
        let description = sys::CUDA_ARRAY3D_DESCRIPTOR {
            Width: size[0],
            Height: size[1],
            Depth: size[2],
            Format: T::ELEMENT.format(),
            NumChannels: T::CHANNELS as c_uint,
            Flags: 0,
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: the context is bound, and all of the description is set; the driver writes one handle.
        unsafe { sys::cuArray3DCreate_v2(&raw mut handle, &raw const description) }
            .result()
            .map_err(failed("allocating a CUDA array"))?;
        Ok(Self { gpu: gpu.clone(), handle, size, of: PhantomData })
    }

    fn memory(&self) -> Memory {
        if self.size[2] == 0 { Memory::Array2 } else { Memory::Array3 }
    }

    /// Copies all of its texels to the device, row after row, layer after layer, and waits.
    ///
    /// # Panics
    /// If there are not so many.
    pub(crate) fn upload_now(&self, texels: &[T], stream: &Stream) -> Result<()> {
        let [width, height, depth] = self.size.map(|n| n.max(1));
        assert_eq!(texels.len(), width * height * depth, "texels for an array of {:?}", self.size);
        self.gpu.bind()?;
        let copy = sys::CUDA_MEMCPY3D {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
            srcHost: texels.as_ptr().cast(),
            srcDevice: 0,
            srcArray: std::ptr::null_mut(),
            reserved0: std::ptr::null_mut(),
            srcPitch: width * size_of::<T>(),
            srcHeight: height,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_ARRAY,
            dstHost: std::ptr::null_mut(),
            dstDevice: 0,
            dstArray: self.handle,
            reserved1: std::ptr::null_mut(),
            dstPitch: 0,
            dstHeight: 0,
            WidthInBytes: width * size_of::<T>(),
            Height: height,
            Depth: depth,
        };
        // SAFETY: both ends have that many texels of that size (checked above), and the wait below keeps
        // `texels` until the copy is done.
        unsafe { sys::cuMemcpy3DAsync_v2(&raw const copy, stream.handle()) }
            .result()
            .map_err(failed("uploading to a CUDA array"))?;
        stream.wait()
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        // SAFETY: made by `cuArray3DCreate_v2`, and no other code destroys it; kernels that could read it are
        // done.
        self.gpu.free(|| unsafe {
            sys::cuCtxSynchronize().result()?;
            sys::cuArrayDestroy(self.handle).result()
        });
    }
}

impl View {
    /// A view of a CUDA array: `tex2D<T>(texture, x, y)` or `tex3D<T>(texture, x, y, z)`.
    ///
    /// # Errors
    /// `Other` if the modes do not go together.
    pub(crate) fn over_array<T: Texel>(array: &Arc<Array<T>>, sampling: Sampling) -> Result<Self> {
        let memory = array.memory();
        sampling.check(memory, T::ELEMENT)?;
        let mut resource = Texture::resource(CUresourcetype::CU_RESOURCE_TYPE_ARRAY);
        resource.res.array = sys::CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_1 { hArray: array.handle };
        let keep: Arc<dyn Any + Send + Sync> = array.clone();
        let size = array.size.map(|n| n.max(1));
        // SAFETY: the array has that size, and the view keeps it.
        unsafe { Self::new::<T>(&array.gpu, memory, &resource, size, sampling, Some(keep)) }
    }
}
