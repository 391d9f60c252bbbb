//! Texture objects: read-only views of device memory through the texture unit, which finds the texel of a
//! coordinate, treats what lies outside, and blends neighbours.
//!
//! What the unit does is the CUDA Programming Guide's appendix on texture fetching; `texture_model` computes
//! it on the processor. Combinations of modes that CUDA has not, some of which it silently turns into others,
//! are refused.
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
use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::sys::{
    self, CUaddress_mode, CUarray_format, CUdevice_attribute as Attribute, CUfilter_mode, CUmemorytype,
    CUresourcetype,
};

use super::driver::{DeviceBuffer, Gpu, Kernel, Pod, Stream, arg, failed, fault, hold_captures_up};
use lockon_core::error::{DeviceFault, Result};
use lockon_core::frame::Size;
use lockon_core::template::{resampled_size, sin_cos_degrees};

const PTX: &str = include_str!("../../../kernels/ptx/texture.ptx");

/// What one channel of a texel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    U8,
    I8,
    U16,
    I16,
    F32,
}

impl Element {
    fn format(self) -> CUarray_format {
        match self {
            Self::U8 => CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8,
            Self::I8 => CUarray_format::CU_AD_FORMAT_SIGNED_INT8,
            Self::U16 => CUarray_format::CU_AD_FORMAT_UNSIGNED_INT16,
            Self::I16 => CUarray_format::CU_AD_FORMAT_SIGNED_INT16,
            Self::F32 => CUarray_format::CU_AD_FORMAT_FLOAT,
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::U8 => "u8",
            Self::I8 => "s8",
            Self::U16 => "u16",
            Self::I16 => "s16",
            Self::F32 => "f32",
        })
    }
}

/// One, two or four channels of an [`Element`]. Textures have no three.
pub(super) trait Texel: Pod {
    const ELEMENT: Element;
    const CHANNELS: usize;
}

macro_rules! texels {
    ($($number:ty: $element:ident),*) => { $(
        impl Texel for $number {
            const ELEMENT: Element = Element::$element;
            const CHANNELS: usize = 1;
        }
        impl Texel for [$number; 2] {
            const ELEMENT: Element = Element::$element;
            const CHANNELS: usize = 2;
        }
        impl Texel for [$number; 4] {
            const ELEMENT: Element = Element::$element;
            const CHANNELS: usize = 4;
        }
    )* };
}
texels!(u8: U8, i8: I8, u16: U16, i16: I16, f32: F32);

/// How neighbours make a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filter {
    /// The texel that the coordinate lies in.
    Point,
    /// The texels around it, weighted along each axis in steps of 1/256.
    Linear,
}

/// What a coordinate outside reads, along every axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Address {
    /// The texel at the edge.
    Clamp,
    /// The texture again.
    Wrap,
    /// The texture again, every other time backwards.
    #[cfg_attr(not(test), expect(dead_code, reason = "no kernel of ours needs it yet"))]
    Mirror,
    /// 0 in every channel.
    Border,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clamp => "clamp",
            Self::Wrap => "wrap",
            Self::Mirror => "mirror",
            Self::Border => "border",
        })
    }
}

/// What a coordinate counts. Texel `i` of N reaches from `i` to `i + 1` pixels, its centre lies at `i + 0.5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coordinates {
    /// Texels: 0 to N.
    Pixels,
    /// Widths of the texture: 0 to 1.
    Normalised,
}

/// What a fetch gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    /// The number itself; integers are widened to 32 bits.
    Element,
    /// 0 to 1 for unsigned integers, -1 to 1 for signed ones, of which the least two both give -1.
    NormalisedFloat,
}

/// How a texture is read. The default is how frames are: texel by texel, the edge going on for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sampling {
    pub(super) filter: Filter,
    pub(super) address: Address,
    pub(super) coordinates: Coordinates,
    pub(super) read: Read,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            filter: Filter::Point,
            address: Address::Clamp,
            coordinates: Coordinates::Pixels,
            read: Read::Element,
        }
    }
}

/// What a texture reads from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// A buffer, read by index with `tex1Dfetch`. An index outside reads 0.
    Linear,
    /// Rows of a buffer.
    Rows,
    /// A 2-D CUDA array, which lies in an order that only the texture unit knows.
    Array2,
    /// A 3-D CUDA array.
    Array3,
}

impl Sampling {
    /// Refuses what CUDA has not for that memory and those elements. Asks no device.
    pub(super) fn check(self, memory: Memory, element: Element) -> Result<()> {
        let Self { filter, address, coordinates, read } = self;
        let refusal = match (memory, element) {
            (Memory::Linear, _) if filter == Filter::Linear => {
                "linear memory is read by index, without a linear filter".into()
            }
            (Memory::Linear, _) if coordinates == Coordinates::Normalised => {
                "linear memory is read by index, without normalised coordinates".into()
            }
            (Memory::Linear, _) if address != Address::Border => {
                format!("linear memory has no {address} addressing: an index outside reads 0 (border)")
            }
            _ if coordinates == Coordinates::Pixels && matches!(address, Address::Wrap | Address::Mirror) => {
                format!(
                    "{address} addressing needs normalised coordinates (CUDA would clamp pixel coordinates)"
                )
            }
            (_, Element::F32) if read == Read::NormalisedFloat => {
                "f32 texels have no normalised-float reads: they are read as they are".into()
            }
            (_, integer) if filter == Filter::Linear && read == Read::Element && integer != Element::F32 => {
                format!("a linear filter of {integer} texels needs normalised-float reads")
            }
            _ => return Ok(()),
        };
        Err(refused(refusal))
    }
}

fn refused(why: impl fmt::Display) -> lockon_core::error::Error {
    fault(DeviceFault::Other(format!("texture: {why}")))
}

/// Least bytes from row to row that textures accept for rows of `width_bytes`.
pub(super) fn pitch_for(gpu: &Gpu, width_bytes: usize) -> Result<usize> {
    let alignment = gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT)?;
    Ok(width_bytes.next_multiple_of(alignment))
}

/// A texture object. It is destroyed when dropped, which waits for the work on the device.
///
/// An array is kept alive by it. A buffer is not: whoever makes a texture over one keeps the buffer
/// ([`Texture::over_rows`], [`Texture::over_linear`]).
pub(super) struct Texture {
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
    pub(super) unsafe fn over_rows<T: Texel, B: Pod>(
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
    #[cfg_attr(not(test), expect(dead_code, reason = "no kernel of ours needs it yet"))]
    pub(super) unsafe fn over_linear<T: Texel>(
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

    /// A view of a CUDA array: `tex2D<T>(texture, x, y)` or `tex3D<T>(texture, x, y, z)`.
    ///
    /// # Errors
    /// `Other` if the modes do not go together.
    pub(super) fn over_array<T: Texel>(array: &Arc<Array<T>>, sampling: Sampling) -> Result<Self> {
        let memory = array.memory();
        sampling.check(memory, T::ELEMENT)?;
        let mut resource = resource(CUresourcetype::CU_RESOURCE_TYPE_ARRAY);
        resource.res.array = sys::CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_1 { hArray: array.handle };
        let keep: Arc<dyn Any + Send + Sync> = array.clone();
        Self::new::<T>(&array.gpu, memory, &resource, array.size.map(|n| n.max(1)), sampling, Some(keep))
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
        let description = describe(sampling, T::ELEMENT);
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

    /// What a kernel takes as `cudaTextureObject_t`.
    pub(super) fn handle(&self) -> u64 {
        self.object
    }
}

impl Drop for Texture {
    fn drop(&mut self) {
        // SAFETY: made by `cuTexObjectCreate`, and nobody else destroys it; kernels that could read it are
        // done. It is destroyed even if the context is lost.
        self.gpu.free(|| unsafe {
            let done = sys::cuCtxSynchronize().result();
            sys::cuTexObjectDestroy(self.object).result().and(done)
        });
    }
}

/// What a device wants of rows that a texture reads, in bytes.
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

fn describe(sampling: Sampling, element: Element) -> sys::CUDA_TEXTURE_DESC {
    let address = match sampling.address {
        Address::Clamp => CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP,
        Address::Wrap => CUaddress_mode::CU_TR_ADDRESS_MODE_WRAP,
        Address::Mirror => CUaddress_mode::CU_TR_ADDRESS_MODE_MIRROR,
        Address::Border => CUaddress_mode::CU_TR_ADDRESS_MODE_BORDER,
    };
    let filter = match sampling.filter {
        Filter::Point => CUfilter_mode::CU_TR_FILTER_MODE_POINT,
        Filter::Linear => CUfilter_mode::CU_TR_FILTER_MODE_LINEAR,
    };
    let mut flags = 0;
    // Numbers that are floats already are read as they are.
    if sampling.read == Read::Element && element != Element::F32 {
        flags |= sys::CU_TRSF_READ_AS_INTEGER;
    }
    if sampling.coordinates == Coordinates::Normalised {
        flags |= sys::CU_TRSF_NORMALIZED_COORDINATES;
    }
    sys::CUDA_TEXTURE_DESC {
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

/// A 2-D or 3-D CUDA array. It is freed when dropped, which waits for the work on the device.
pub(super) struct Array<T> {
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
    pub(super) fn new_2d(gpu: &Gpu, size: Size) -> Result<Self> {
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
    #[cfg_attr(not(test), expect(dead_code, reason = "no kernel of ours needs it yet"))]
    pub(super) fn new_3d(gpu: &Gpu, size: [usize; 3]) -> Result<Self> {
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
    pub(super) fn upload_now(&self, texels: &[T], stream: &Stream) -> Result<()> {
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
        // SAFETY: made by `cuArray3DCreate_v2`, and nobody else destroys it; kernels that could read it are
        // done.
        self.gpu.free(|| unsafe {
            sys::cuCtxSynchronize().result()?;
            sys::cuArrayDestroy(self.handle).result()
        });
    }
}

/// The kernel `resample`: a picture scaled and turned about its centre by linear fetches.
///
/// Nothing that is reported depends on it. Members of a bank are resampled by [`lockon_core::template`], in
/// whole numbers, so that every backend searches for the same pixels; how the texture unit rounds what it
/// blends is not documented.
pub(super) struct Resample {
    kernel: Kernel,
}

impl Resample {
    pub(super) fn load(gpu: &Gpu) -> Result<Self> {
        Ok(Self { kernel: gpu.load(PTX)?.kernel("resample")? })
    }

    /// Writes the texture's picture scaled by `scale` and turned counter-clockwise by `angle` degrees to the
    /// start of `out`, row after row, without waiting: `out` and the texture must be kept until it is done.
    /// Returns the picture's size, which is that of the smallest box around it.
    ///
    /// What lies outside is what the texture's addressing says. One fetch a pixel: at less than half the size
    /// pixels are passed over, unlike on the host.
    ///
    /// # Errors
    /// `Other` if the texture is not of u8 in one channel and two dimensions, with a linear filter and
    /// normalised-float reads.
    ///
    /// # Panics
    /// If `out` is too small, or the scale is not positive.
    pub(super) fn run(
        &self,
        stream: &Stream,
        texture: &Texture,
        scale: f64,
        angle: f64,
        out: &mut DeviceBuffer<u8>,
    ) -> Result<Size> {
        let Texture { memory, element, channels, sampling, .. } = *texture;
        if !matches!(memory, Memory::Rows | Memory::Array2) || (element, channels) != (Element::U8, 1) {
            return Err(refused("resampling reads pictures of one channel of u8"));
        }
        if sampling.filter != Filter::Linear {
            return Err(refused("resampling needs a linear filter"));
        }
        assert!(scale > 0.0, "a scale of {scale}");
        let [w, h, _] = texture.size;
        let turned = resampled_size(Size::new(w, h), scale, angle);
        assert!(turned.area() <= out.len(), "{turned} pixels into {}", out.len());
        let (sin, cos) = sin_cos_degrees(angle);
        let (sin, cos) = ((sin / scale) as f32, (cos / scale) as f32);
        let (unit_x, unit_y) = match sampling.coordinates {
            Coordinates::Pixels => (1.0, 1.0),
            Coordinates::Normalised => (w as f32, h as f32),
        };
        let (handle, to) = (texture.handle(), out.address());
        let [w, h, out_w, out_h] = [w, h, turned.width, turned.height].map(|n| n as i32);
        let block = [32, 8, 1];
        let grid = [turned.width.div_ceil(block[0]), turned.height.div_ceil(block[1]), 1];
        let args = &mut [
            arg(&handle),
            arg(&w),
            arg(&h),
            arg::<f32>(&unit_x),
            arg::<f32>(&unit_y),
            arg(&cos),
            arg(&sin),
            arg(&to),
            arg(&out_w),
            arg(&out_h),
        ];
        // SAFETY: the arguments are those of `resample` in kernels/texture.cu, of their types and in their
        // order. It writes the `turned.area()` bytes that `out` was asserted to have; the texture's memory
        // lives, as whoever made the texture promised (`Texture::over_rows`) or the texture sees to itself.
        unsafe { stream.launch(&self.kernel, grid, block, 0, args) }?;
        Ok(turned)
    }
}

#[cfg(test)]
mod tests {
    use super::super::driver::{Module, Priority};
    use super::super::testing;
    use super::super::texture_model::{Channels, Model};
    use super::*;
    use lockon_core::frame::Plane;
    use lockon_core::template::Template;

    const MEMORIES: [Memory; 4] = [Memory::Linear, Memory::Rows, Memory::Array2, Memory::Array3];
    const ELEMENTS: [Element; 5] = [Element::U8, Element::I8, Element::U16, Element::I16, Element::F32];

    fn every_sampling() -> impl Iterator<Item = Sampling> {
        let modes = [Filter::Point, Filter::Linear].into_iter().flat_map(|filter| {
            [Address::Clamp, Address::Wrap, Address::Mirror, Address::Border].map(|address| (filter, address))
        });
        modes.flat_map(|(filter, address)| {
            [Coordinates::Pixels, Coordinates::Normalised].into_iter().flat_map(move |coordinates| {
                [Read::Element, Read::NormalisedFloat].map(|read| Sampling {
                    filter,
                    address,
                    coordinates,
                    read,
                })
            })
        })
    }

    fn noise(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        }
    }

    #[test]
    fn modes_are_refused_by_name() {
        let default = Sampling::default();
        let border = Sampling { address: Address::Border, ..default };
        let normalised = Sampling { coordinates: Coordinates::Normalised, ..default };
        let linear = Sampling { filter: Filter::Linear, ..default };
        let cases = [
            (
                Sampling { filter: Filter::Linear, ..border },
                Memory::Linear,
                Element::F32,
                "linear memory is read by index, without a linear filter",
            ),
            (
                Sampling { coordinates: Coordinates::Normalised, ..border },
                Memory::Linear,
                Element::U8,
                "linear memory is read by index, without normalised coordinates",
            ),
            (
                default,
                Memory::Linear,
                Element::U8,
                "linear memory has no clamp addressing: an index outside reads 0 (border)",
            ),
            (
                Sampling { address: Address::Wrap, ..default },
                Memory::Linear,
                Element::U8,
                "linear memory has no wrap addressing: an index outside reads 0 (border)",
            ),
            (
                Sampling { address: Address::Mirror, ..default },
                Memory::Linear,
                Element::U8,
                "linear memory has no mirror addressing: an index outside reads 0 (border)",
            ),
            (
                Sampling { address: Address::Wrap, ..default },
                Memory::Rows,
                Element::U8,
                "wrap addressing needs normalised coordinates (CUDA would clamp pixel coordinates)",
            ),
            (
                Sampling { address: Address::Mirror, ..default },
                Memory::Array3,
                Element::F32,
                "mirror addressing needs normalised coordinates (CUDA would clamp pixel coordinates)",
            ),
            (
                Sampling { read: Read::NormalisedFloat, ..normalised },
                Memory::Array2,
                Element::F32,
                "f32 texels have no normalised-float reads: they are read as they are",
            ),
            (linear, Memory::Rows, Element::U8, "a linear filter of u8 texels needs normalised-float reads"),
            (
                linear,
                Memory::Array2,
                Element::I8,
                "a linear filter of s8 texels needs normalised-float reads",
            ),
            (
                linear,
                Memory::Array2,
                Element::U16,
                "a linear filter of u16 texels needs normalised-float reads",
            ),
            (
                linear,
                Memory::Array3,
                Element::I16,
                "a linear filter of s16 texels needs normalised-float reads",
            ),
        ];
        for (sampling, memory, element, why) in cases {
            let error = sampling.check(memory, element).expect_err(why);
            assert_eq!(error.to_string(), format!("cuda: texture: {why}"));
        }
    }

    #[test]
    fn modes_that_go_together_are_counted() {
        let allowed = |memory, element| every_sampling().filter(|s| s.check(memory, element).is_ok()).count();
        for element in ELEMENTS {
            // Integers: point with both reads, linear with normalised floats; f32: both filters with element
            // reads. Each with clamp and border in both coordinates, wrap and mirror in normalised ones.
            let (by_index, by_coordinate) = if element == Element::F32 { (1, 2 * 6) } else { (2, 3 * 6) };
            for memory in MEMORIES {
                let count = if memory == Memory::Linear { by_index } else { by_coordinate };
                assert_eq!(allowed(memory, element), count, "{memory:?} {element}");
            }
        }
    }

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

    /// Runs the kernels that fetch.
    struct Fetcher {
        module: Module,
        stream: Stream,
    }

    impl Fetcher {
        fn new(gpu: &Gpu) -> Self {
            Self { module: gpu.load(PTX).unwrap(), stream: gpu.stream(Priority::Normal).unwrap() }
        }

        fn fetch(&self, texture: &Texture, at: &[[f32; 3]]) -> Vec<[f64; 4]> {
            const KERNELS: [[[&str; 3]; 2]; 3] = [
                [
                    ["fetch_1d_int", "fetch_1d_int2", "fetch_1d_int4"],
                    ["fetch_1d_float", "fetch_1d_float2", "fetch_1d_float4"],
                ],
                [
                    ["fetch_2d_int", "fetch_2d_int2", "fetch_2d_int4"],
                    ["fetch_2d_float", "fetch_2d_float2", "fetch_2d_float4"],
                ],
                [
                    ["fetch_3d_int", "fetch_3d_int2", "fetch_3d_int4"],
                    ["fetch_3d_float", "fetch_3d_float2", "fetch_3d_float4"],
                ],
            ];
            let dimensions = match texture.memory {
                Memory::Linear => 1,
                Memory::Rows | Memory::Array2 => 2,
                Memory::Array3 => 3,
            };
            let is_float = texture.element == Element::F32 || texture.sampling.read == Read::NormalisedFloat;
            let name = KERNELS[dimensions - 1][usize::from(is_float)][texture.channels / 2];
            // What is not written stays a value that no texel has.
            if is_float {
                self.run(name, texture, at, f32::NAN).into_iter().map(|texel| texel.map(f64::from)).collect()
            } else {
                self.run(name, texture, at, i32::MIN).into_iter().map(|texel| texel.map(f64::from)).collect()
            }
        }

        fn run<N: Pod>(
            &self,
            name: &'static str,
            texture: &Texture,
            at: &[[f32; 3]],
            poison: N,
        ) -> Vec<[N; 4]> {
            let (gpu, stream) = (self.stream.gpu(), &self.stream);
            let mut from = gpu.alloc::<f32>("coordinates", 3 * at.len()).unwrap();
            stream.upload_now(at.as_flattened(), &mut from).unwrap();
            let mut out = vec![poison; 4 * at.len()];
            let mut to = gpu.alloc::<N>("texels", out.len()).unwrap();
            stream.upload_now(&out, &mut to).unwrap();
            let (handle, from_address, to_address) = (texture.handle(), from.address(), to.address());
            let count = at.len() as i32;
            let args = &mut [arg(&handle), arg(&from_address), arg(&to_address), arg(&count)];
            let kernel = self.module.kernel(name).unwrap();
            // SAFETY: the arguments are those of `FETCH` in kernels/texture.cu; it reads 3 numbers and writes
            // 4 for each of `count` fetches, and the buffers have so many. They and the texture live until
            // the copy below has waited.
            unsafe { stream.launch(&kernel, [at.len().div_ceil(64), 1, 1], [64, 1, 1], 0, args) }.unwrap();
            stream.download_now(&to, &mut out).unwrap();
            out.chunks_exact(4).map(|texel| [texel[0], texel[1], texel[2], texel[3]]).collect()
        }
    }

    /// How coordinates are chosen.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Choice {
        /// On multiples of 1/256 texel, so that the weights need no rounding, which is not documented.
        OnSteps,
        Anywhere,
    }

    /// Coordinates inside, at the edges and outside.
    fn coordinates(size: [usize; 3], sampling: Sampling, choice: Choice) -> Vec<[f32; 3]> {
        let Sampling { filter, coordinates, .. } = sampling;
        let mut next = noise(11);
        let mut along = |length: usize, index: usize| {
            let (n, any) = (length as f32, next());
            // In texels. A point fetch keeps away from where one texel ends, which rounding could move; but
            // with pixel coordinates on steps nothing is rounded.
            let texels = match index % 8 {
                0 => [-1000.75, n + 1000.25, -0.75, n + 0.25][(any % 4) as usize],
                1 if filter == Filter::Linear => [0.0, 0.5, n - 0.5, n][(any % 4) as usize],
                1 if coordinates == Coordinates::Pixels => [0.0, 1.0, n - 1.0, n][(any % 4) as usize],
                _ => {
                    let whole = (any >> 16) % (5 * length as u64);
                    let fraction = match (filter, choice) {
                        (Filter::Linear, Choice::OnSteps) => (any % 256) as f32 / 256.0,
                        (Filter::Linear, Choice::Anywhere) => (any % 65536) as f32 / 65536.0,
                        (Filter::Point, Choice::OnSteps) => (16 + any % 225) as f32 / 256.0,
                        (Filter::Point, Choice::Anywhere) => (4096 + any % 57345) as f32 / 65536.0,
                    };
                    whole as f32 - 2.0 * n + fraction
                }
            };
            match coordinates {
                Coordinates::Pixels => texels,
                Coordinates::Normalised => texels / n,
            }
        };
        (0..256).map(|i| [along(size[0], i), along(size[1], i / 2), along(size[2], i / 3)]).collect()
    }

    /// Most that a fetch may differ from the model.
    ///
    /// Element reads by point fetches are exact. Normalised floats are a quotient in f32: two units in the
    /// last place are allowed. How products of two or three weights are rounded is not documented: each may
    /// be half a step off, and what they are off cancels out in their sum, so that each counts for half the
    /// range; what is blended may be rounded to a step before or after. Where a coordinate is not exactly on
    /// a step, each axis may take the next weight.
    fn allowed(model: &Model, sampling: Sampling, weights_are_exact: bool, dimensions: usize) -> f64 {
        let step = model.range() / 256.0;
        let rounded = f64::from(1 << dimensions) * step / 4.0 + step;
        match (sampling.filter, sampling.read) {
            (Filter::Point, Read::Element) => 0.0,
            (Filter::Point, Read::NormalisedFloat) => 2.0 * f64::from(f32::EPSILON),
            (Filter::Linear, _) if weights_are_exact => rounded,
            (Filter::Linear, _) => rounded + step * dimensions as f64,
        }
    }

    /// A texture with what it reads, which outlives it.
    struct OnDevice<T> {
        texture: Texture,
        _buffer: Option<DeviceBuffer<T>>,
    }

    impl<T: Channels> OnDevice<T> {
        fn new(stream: &Stream, memory: Memory, size: [usize; 3], texels: &[T], sampling: Sampling) -> Self {
            let gpu = stream.gpu();
            let [width, height, _] = size;
            match memory {
                Memory::Linear => {
                    let mut buffer = gpu.alloc("texels", texels.len()).unwrap();
                    stream.upload_now(texels, &mut buffer).unwrap();
                    // SAFETY: it is kept beside the texture.
                    let texture = unsafe { Texture::over_linear(gpu, &buffer, sampling) }.unwrap();
                    Self { texture, _buffer: Some(buffer) }
                }
                Memory::Rows => {
                    let pitch = pitch_for(gpu, width * size_of::<T>()).unwrap();
                    assert_eq!(pitch % size_of::<T>(), 0, "texels to a row");
                    let padded = pitch / size_of::<T>();
                    // Padding that would be seen: the greatest value.
                    let mut rows = vec![T::random(1, &mut noise(0)); padded * height];
                    for (row, texels) in rows.chunks_exact_mut(padded).zip(texels.chunks_exact(width)) {
                        row[..width].copy_from_slice(texels);
                    }
                    let mut buffer = gpu.alloc("texels", rows.len()).unwrap();
                    stream.upload_now(&rows, &mut buffer).unwrap();
                    let size = Size::new(width, height);
                    // SAFETY: it is kept beside the texture.
                    let texture =
                        unsafe { Texture::over_rows::<T, T>(gpu, &buffer, 0, pitch, size, sampling) };
                    let texture = texture.unwrap();
                    Self { texture, _buffer: Some(buffer) }
                }
                Memory::Array2 | Memory::Array3 => {
                    let array = match memory {
                        Memory::Array2 => Array::new_2d(gpu, Size::new(width, height)),
                        _ => Array::new_3d(gpu, size),
                    };
                    let array = Arc::new(array.unwrap());
                    array.upload_now(texels, stream).unwrap();
                    Self { texture: Texture::over_array(&array, sampling).unwrap(), _buffer: None }
                }
            }
        }
    }

    /// Compares every allowed combination of modes for one type of texel; returns the largest difference of a
    /// linear fetch with exact weights, in steps of a weight.
    fn compare<T: Channels>(fetcher: &Fetcher) -> f64 {
        let mut largest = 0.0_f64;
        for memory in MEMORIES {
            // Odd sizes, and powers of two, for which normalised coordinates lose nothing.
            let sizes = match memory {
                Memory::Linear => [[13, 1, 1], [16, 1, 1]],
                Memory::Rows | Memory::Array2 => [[7, 5, 1], [8, 4, 1]],
                Memory::Array3 => [[5, 3, 7], [4, 2, 8]],
            };
            let dimensions = if memory == Memory::Array3 { 3 } else { 2 };
            for (is_odd, size) in [true, false].into_iter().zip(sizes) {
                let mut next = noise(7);
                let texels: Vec<T> = (0..size.iter().product()).map(|i| T::random(i, &mut next)).collect();
                for sampling in every_sampling().filter(|s| s.check(memory, T::ELEMENT).is_ok()) {
                    let model = Model::new(memory, size, &texels, sampling);
                    let device = OnDevice::new(&fetcher.stream, memory, size, &texels, sampling);
                    for choice in [Choice::OnSteps, Choice::Anywhere] {
                        let at = if memory == Memory::Linear {
                            (-40..60).map(|i| [i as f32, 0.0, 0.0]).collect()
                        } else {
                            coordinates(size, sampling, choice)
                        };
                        let is_exact = choice == Choice::OnSteps
                            && (sampling.coordinates == Coordinates::Pixels || !is_odd);
                        let allowed = allowed(&model, sampling, is_exact, dimensions);
                        for (at, found) in at.iter().zip(fetcher.fetch(&device.texture, &at)) {
                            let wanted = model.fetch(*at);
                            let off = wanted.iter().zip(found).map(|(wanted, found)| (wanted - found).abs());
                            // A number that is none differs from every number.
                            let off =
                                off.fold(0.0, |a: f64, b| if b.is_nan() { f64::INFINITY } else { a.max(b) });
                            assert!(
                                off <= allowed,
                                "{memory:?}, {size:?} texels of {}x{}, {sampling:?}, {choice:?}, at {at:?}: \
                                 {found:?} is not {wanted:?}: {off} off, and {allowed} is allowed",
                                T::CHANNELS,
                                T::ELEMENT
                            );
                            if sampling.filter == Filter::Linear && is_exact {
                                largest = largest.max(off / (model.range() / 256.0));
                            }
                        }
                    }
                }
            }
        }
        largest
    }

    macro_rules! fetches_are_what_the_model_gives {
        ($($name:ident: $number:ty;)*) => { $(
            #[test]
            fn $name() {
                let Some(gpu) = testing::gpu() else { return };
                let fetcher = Fetcher::new(&gpu);
                let largest = [
                    compare::<$number>(&fetcher),
                    compare::<[$number; 2]>(&fetcher),
                    compare::<[$number; 4]>(&fetcher),
                ];
                println!("linear fetches are at most {largest:?} steps of a weight off (1, 2, 4 channels)");
                gpu.check_dropped().unwrap();
            }
        )* };
    }
    fetches_are_what_the_model_gives! {
        fetches_of_u8_are_what_the_model_gives: u8;
        fetches_of_s8_are_what_the_model_gives: i8;
        fetches_of_u16_are_what_the_model_gives: u16;
        fetches_of_s16_are_what_the_model_gives: i16;
        fetches_of_f32_are_what_the_model_gives: f32;
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

    #[test]
    fn a_texture_keeps_its_array() {
        let Some(gpu) = testing::gpu() else { return };
        let fetcher = Fetcher::new(&gpu);
        let array = Arc::new(Array::new_2d(&gpu, Size::new(3, 1)).unwrap());
        array.upload_now(&[5_u8, 6, 7], &fetcher.stream).unwrap();
        let texture = Texture::over_array(&array, Sampling::default()).unwrap();
        drop(array);
        let read = fetcher.fetch(&texture, &[[2.5, 0.5, 0.0]]);
        assert_eq!(read, [[7.0, 0.0, 0.0, 0.0]]);
    }

    /// A picture of 37x23 in which neighbours differ by much.
    fn picture() -> Plane {
        let mut next = noise(3);
        let size = Size::new(37, 23);
        Plane::from_vec((0..size.area()).map(|_| next() as u8).collect(), size)
    }

    const LINEAR: Sampling = Sampling {
        filter: Filter::Linear,
        address: Address::Clamp,
        coordinates: Coordinates::Pixels,
        read: Read::NormalisedFloat,
    };

    fn resampled(gpu: &Gpu, memory: Memory, sampling: Sampling, scale: f64, angle: f64) -> Plane {
        let picture = picture();
        let stream = gpu.stream(Priority::Normal).unwrap();
        let size = [picture.size().width, picture.size().height, 1];
        let device = OnDevice::new(&stream, memory, size, picture.data(), sampling);
        let turned = resampled_size(picture.size(), scale, angle);
        let mut buffer = gpu.alloc::<u8>("resampled", turned.area()).unwrap();
        let resample = Resample::load(gpu).unwrap();
        assert_eq!(resample.run(&stream, &device.texture, scale, angle, &mut buffer).unwrap(), turned);
        let mut out = vec![0; turned.area()];
        stream.download_now(&buffer, &mut out).unwrap();
        Plane::from_vec(out, turned)
    }

    /// What the kernel's formula gives with the model for a texture. The kernel is compiled without fused
    /// multiply-adds, so that the coordinates are the same.
    fn resampled_by_model(sampling: Sampling, scale: f64, angle: f64) -> Plane {
        let picture = picture();
        let Size { width: w, height: h } = picture.size();
        let model = Model::new(Memory::Array2, [w, h, 1], picture.data(), sampling);
        let turned = resampled_size(picture.size(), scale, angle);
        let (sin, cos) = sin_cos_degrees(angle);
        let (sin, cos) = ((sin / scale) as f32, (cos / scale) as f32);
        let (w, h) = (w as f32, h as f32);
        let units = if sampling.coordinates == Coordinates::Pixels { [1.0, 1.0] } else { [w, h] };
        let pixels = (0..turned.area()).map(|index| {
            let (i, j) = ((index % turned.width) as f32, (index / turned.width) as f32);
            let u = 0.5 * (2.0 * i + 1.0 - turned.width as f32);
            let v = 0.5 * (2.0 * j + 1.0 - turned.height as f32);
            let x = cos * u - sin * v + 0.5 * w;
            let y = sin * u + cos * v + 0.5 * h;
            (model.fetch([x / units[0], y / units[1], 0.0])[0] * 255.0 + 0.5).floor() as u8
        });
        Plane::from_vec(pixels.collect(), turned)
    }

    fn largest_difference(a: &Plane, b: &Plane) -> u8 {
        assert_eq!(a.size(), b.size());
        a.data().iter().zip(b.data()).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0)
    }

    #[test]
    fn resampling_moves_pixels_by_quarter_turns_without_mixing_them() {
        let source = picture();
        let Size { width: w, height: h } = source.size();
        // Where pixel (i, j) of the turned picture comes from: cos * u - sin * v and sin * u + cos * v, in
        // pixels.
        let from = |angle: f64, i, j| match angle {
            0.0 => (i, j),
            90.0 => (w - 1 - j, i),
            180.0 => (w - 1 - i, h - 1 - j),
            _ => (j, h - 1 - i),
        };
        let gpu = testing::gpu();
        for angle in [0.0, 90.0, 180.0, 270.0] {
            let check = |turned: &Plane| {
                for (index, pixel) in turned.data().iter().enumerate() {
                    let (x, y) = from(angle, index % turned.size().width, index / turned.size().width);
                    assert_eq!(*pixel, source.data()[y * w + x], "pixel {index} at {angle} degrees");
                }
            };
            check(&resampled_by_model(LINEAR, 1.0, angle));
            if let Some(gpu) = &gpu {
                check(&resampled(gpu, Memory::Array2, LINEAR, 1.0, angle));
                check(&resampled(gpu, Memory::Rows, LINEAR, 1.0, angle));
            }
        }
    }

    #[test]
    fn resampling_is_what_the_model_gives() {
        let Some(gpu) = testing::gpu() else { return };
        let addresses = [
            (Address::Clamp, Coordinates::Pixels),
            (Address::Border, Coordinates::Pixels),
            (Address::Clamp, Coordinates::Normalised),
            (Address::Border, Coordinates::Normalised),
            (Address::Wrap, Coordinates::Normalised),
            (Address::Mirror, Coordinates::Normalised),
        ];
        for (address, coordinates) in addresses {
            let sampling = Sampling { address, coordinates, ..LINEAR };
            for (scale, angle) in [(0.5, 0.0), (2.0, 0.0), (1.0, 30.0), (0.75, -30.0), (1.5, 135.0)] {
                let model = resampled_by_model(sampling, scale, angle);
                // At halves and doubles the weights are exact in pixel coordinates: what is left is how
                // halves are rounded. Else each of two axes may take the next weight, a 256th of at most 255
                // off, and the sum is rounded.
                let is_exact = angle == 0.0 && coordinates == Coordinates::Pixels;
                let allowed = if is_exact { 1 } else { 3 };
                for memory in [Memory::Array2, Memory::Rows] {
                    let found = resampled(&gpu, memory, sampling, scale, angle);
                    let off = largest_difference(&found, &model);
                    assert!(
                        off <= allowed,
                        "{memory:?}, {sampling:?}, scale {scale}, angle {angle}: {off} off"
                    );
                }
            }
        }
    }

    /// The formula is that of the host, which resamples in whole numbers, with weights cut to 8 bits instead
    /// of rounded.
    #[test]
    fn resampling_is_near_to_that_of_the_host_where_pixels_count() {
        let gpu = testing::gpu();
        for (scale, angle) in [(1.0, 0.0), (2.0, 0.0), (1.0, 90.0), (1.0, 30.0), (1.5, -135.0)] {
            let host = Template::new("picture", picture(), None).unwrap().resampled(scale, angle).unwrap();
            let near = |found: &Plane| {
                assert_eq!(found.size(), host.size());
                for (index, (found, wanted)) in found.data().iter().zip(host.luma().data()).enumerate() {
                    let counts = host.mask().is_none_or(|mask| mask.data()[index] == 1);
                    // As in `resampling_is_what_the_model_gives`.
                    let is_near = found.abs_diff(*wanted) <= 3;
                    assert!(
                        !counts || is_near,
                        "pixel {index}: {found}, and {wanted} on the host ({scale}, {angle})"
                    );
                }
            };
            near(&resampled_by_model(LINEAR, scale, angle));
            if let Some(gpu) = &gpu {
                near(&resampled(gpu, Memory::Array2, LINEAR, scale, angle));
            }
        }
    }

    #[test]
    fn resampling_refuses_what_it_cannot_read() {
        let Some(gpu) = testing::gpu() else { return };
        let stream = gpu.stream(Priority::Normal).unwrap();
        let resample = Resample::load(&gpu).unwrap();
        let mut out = gpu.alloc::<u8>("resampled", 64).unwrap();
        let mut said = |texture: &Texture| {
            let refusal = resample.run(&stream, texture, 1.0, 0.0, &mut out);
            refusal.expect_err("a refusal").to_string()
        };
        let array = Arc::new(Array::<u8>::new_2d(&gpu, Size::new(3, 3)).unwrap());
        let point = Texture::over_array(&array, Sampling { filter: Filter::Point, ..LINEAR }).unwrap();
        assert_eq!(said(&point), "cuda: texture: resampling needs a linear filter");
        let array = Arc::new(Array::<u16>::new_2d(&gpu, Size::new(3, 3)).unwrap());
        let wide = Texture::over_array(&array, LINEAR).unwrap();
        assert_eq!(said(&wide), "cuda: texture: resampling reads pictures of one channel of u8");
    }
}
