//! Texture objects: read-only views of device memory through the texture unit, which finds the texel of a
//! coordinate, treats what lies outside, and blends neighbours.
//!
//! A texture sees what was written to its memory by earlier launches and copies of the stream, not by its own
//! launch.

#![expect(
    unsafe_code,
    reason = "the driver's interface is C: descriptions without types, handles without owners"
)]

use cudarc::driver::sys::{
    self, CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC, CUaddress_mode, CUfilter_mode, CUresourcetype,
};

use lockon_core::error::Result;

use super::Attribute;
use super::device::Gpu;
use super::error::failed;

/// A texture object. It is destroyed when dropped, which waits for the work on the device. It does not keep
/// the memory that it reads.
pub struct Texture {
    gpu: Gpu,
    object: sys::CUtexObject,
}

impl Texture {
    /// A view of the memory that `resource` describes, read as `sampling` says.
    ///
    /// # Safety
    /// - All of both descriptions is set,
    /// - the memory has the described size, and lives whenever a kernel is launched that is given this
    ///   texture.
    pub unsafe fn new(
        gpu: &Gpu,
        resource: &CUDA_RESOURCE_DESC,
        sampling: &CUDA_TEXTURE_DESC,
    ) -> Result<Self> {
        gpu.bind()?;
        let mut object = 0;
        // SAFETY: the context is bound; the descriptions are the caller's.
        unsafe { sys::cuTexObjectCreate(&raw mut object, resource, sampling, std::ptr::null()) }
            .result()
            .map_err(failed("creating a texture"))?;
        Ok(Self { gpu: gpu.clone(), object })
    }

    /// Returns the handle that a kernel takes as `cudaTextureObject_t`.
    pub fn handle(&self) -> u64 {
        self.object
    }

    /// A description of memory, all of it 0 but the kind.
    pub fn resource(kind: CUresourcetype) -> CUDA_RESOURCE_DESC {
        let reserved = sys::CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_5 { reserved: [0; 32] };
        CUDA_RESOURCE_DESC {
            resType: kind,
            res: sys::CUDA_RESOURCE_DESC_st__bindgen_ty_1 { reserved },
            flags: 0,
        }
    }

    /// A description of how to read: without mipmaps, a border of 0, and the same addressing along all axes.
    pub const fn sampling(address: CUaddress_mode, filter: CUfilter_mode, flags: u32) -> CUDA_TEXTURE_DESC {
        CUDA_TEXTURE_DESC {
            addressMode: [address; 3],
            filterMode: filter,
            flags,
            maxAnisotropy: 0,
            mipmapFilterMode: CUfilter_mode::CU_TR_FILTER_MODE_POINT,
            mipmapLevelBias: 0.0,
            minMipmapLevelClamp: 0.0,
            maxMipmapLevelClamp: 0.0,
            borderColor: [0.0; 4],
            reserved: [0; 12],
        }
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

/// The minimum pitch that textures accept for rows of `width_bytes`.
pub fn pitch_for(gpu: &Gpu, width_bytes: usize) -> Result<usize> {
    let alignment = gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT)?;
    Ok(width_bytes.next_multiple_of(alignment))
}
