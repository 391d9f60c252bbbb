//! NVIDIA's own libraries, where they are installed, to be timed beside our kernels: NPP and cuFFT.
//!
//! They are looked for at run time, under the names that CUDA 13 and 12 give them, where the system looks for
//! libraries and where CUDA's installer puts them. Only `kernels --peers` does so.

#![expect(unsafe_code, reason = "functions of C libraries, which are found by name")]

use std::ffi::{c_int, c_void};

use libloading::Library;

use lockon_core::error::{DeviceFault, Error, Result};
use lockon_core::frame::Size;
use lockon_cuda::driver::{Attribute, DeviceBuffer, Gpu, Stream, fault};
use lockon_cuda::parts::Frame;

/// Where CUDA's installer puts libraries that the system does not look for by itself.
const INSTALLED: &str = "/usr/local/cuda/lib64";

/// The libraries that were found.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// NVIDIA Performance Primitives.
    pub(super) npp: Option<Npp>,
    /// cuFFT.
    pub(super) fft: Option<Fft>,
    /// Names of the libraries that were not found.
    pub(super) missing: Vec<&'static str>,
}

impl Peers {
    /// Looks for them.
    pub(super) fn load() -> Self {
        let mut missing = Vec::new();
        let mut open = |name: &'static str, versions: &[u32]| {
            let library = find(name, versions);
            if library.is_none() {
                missing.push(name);
            }
            library
        };
        // The other two need it, and find it once it is there.
        let core = open("libnppc", &[13, 12]);
        let libraries = (open("libnppist", &[13, 12]), open("libnppif", &[13, 12]));
        // cuFFT counts otherwise: 12 comes with CUDA 13.
        let fft = open("libcufft", &[12, 11]);
        let npp = match libraries {
            (Some(statistics), Some(filtering)) => core.map(|_| Npp { statistics, filtering }),
            _ => None,
        };
        Self { npp, fft: fft.map(|library| Fft { library }), missing }
    }
}

/// A library that is never unloaded: what its maker's code has started may run to the end of the process.
fn find(name: &str, versions: &[u32]) -> Option<&'static Library> {
    let files = versions.iter().map(|version| format!("{name}.so.{version}"));
    let mut places = files.flat_map(|file| [format!("{INSTALLED}/{file}"), file]);
    // SAFETY: what these libraries do when they are loaded is their maker's, and as for every program that
    // links with them.
    let library = places.find_map(|place| unsafe { Library::new(place) }.ok());
    library.map(|library| &*Box::leak(Box::new(library)))
}

/// Turns a library's return code other than 0 into an error.
fn check(what: &'static str, code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(fault(DeviceFault::Other(format!("{what} returned {code}")))) }
}

fn missing(what: &'static str) -> impl FnOnce(libloading::Error) -> Error {
    move |error| fault(DeviceFault::Other(format!("{what}: {error}")))
}

/// NVIDIA Performance Primitives.
#[derive(Debug)]
pub(super) struct Npp {
    statistics: &'static Library,
    filtering: &'static Library,
}

/// `NppiSize`, and `NppiPoint`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Pair(c_int, c_int);

impl From<Size> for Pair {
    fn from(size: Size) -> Self {
        Self(size.width as c_int, size.height as c_int)
    }
}

/// `NppStreamContext`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct StreamContext {
    stream: *mut c_void,
    device: c_int,
    multiprocessors: c_int,
    threads_of_multiprocessor: c_int,
    threads_of_block: c_int,
    shared_bytes: usize,
    capability_major: c_int,
    capability_minor: c_int,
    flags: u32,
    reserved: c_int,
}

impl StreamContext {
    fn new(gpu: &Gpu, stream: &Stream) -> Result<Self> {
        let int = |which| Ok::<_, Error>(gpu.attribute(which)? as c_int);
        Ok(Self {
            stream: stream.handle().cast(),
            device: gpu.info().number as c_int,
            multiprocessors: int(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            threads_of_multiprocessor: int(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
            threads_of_block: int(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            shared_bytes: gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
            capability_major: gpu.info().capability.major as c_int,
            capability_minor: gpu.info().capability.minor as c_int,
            // Its stream does not wait for the default stream.
            flags: 1,
            reserved: 0,
        })
    }
}

type BufferSize = unsafe extern "C" fn(Pair, *mut u64, StreamContext) -> c_int;
type CrossCorrelation = unsafe extern "C" fn(
    *const c_void,
    c_int,
    Pair,
    *const c_void,
    c_int,
    Pair,
    *mut c_void,
    c_int,
    *mut c_void,
    StreamContext,
) -> c_int;
type ThresholdAdaptive = unsafe extern "C" fn(
    *const c_void,
    c_int,
    Pair,
    Pair,
    *mut c_void,
    c_int,
    Pair,
    Pair,
    f32,
    u8,
    u8,
    c_int,
    StreamContext,
) -> c_int;

/// `NPP_BORDER_REPLICATE`.
const REPLICATE: c_int = 2;

impl Npp {
    /// `nppiCrossCorrValid_NormLevel_8u32f_C1R_Ctx` for frames of one size.
    pub(super) fn search(&self, gpu: &Gpu, stream: &Stream, frame: Size) -> Result<NppSearch> {
        let context = StreamContext::new(gpu, stream)?;
        // An `int` in CUDA 12 and a `size_t` in CUDA 13: what is not written stays 0.
        let mut bytes = 0_u64;
        let name = "nppiValidNormLevelGetBufferHostSize_8u32f_C1R_Ctx";
        // SAFETY: the function of that name takes these, and writes at most 8 bytes.
        let code = unsafe {
            let ask = self.statistics.get::<BufferSize>(name).map_err(missing(name))?;
            ask(frame.into(), &raw mut bytes, context)
        };
        check(name, code)?;
        let name = "nppiCrossCorrValid_NormLevel_8u32f_C1R_Ctx";
        // SAFETY: the function of that name has this type.
        let run = unsafe { *self.statistics.get::<CrossCorrelation>(name).map_err(missing(name))? };
        Ok(NppSearch { context, run, scratch: gpu.alloc("NPP's buffer", bytes as usize)? })
    }

    /// `nppiFilterThresholdAdaptiveBoxBorder_8u_C1R_Ctx`.
    pub(super) fn threshold(&self, gpu: &Gpu, stream: &Stream, block: usize, c: f32) -> Result<NppThreshold> {
        let name = "nppiFilterThresholdAdaptiveBoxBorder_8u_C1R_Ctx";
        // SAFETY: the function of that name has this type.
        let run = unsafe { *self.filtering.get::<ThresholdAdaptive>(name).map_err(missing(name))? };
        Ok(NppThreshold { context: StreamContext::new(gpu, stream)?, run, block: block as c_int, c })
    }
}

/// A search by NPP.
pub(super) struct NppSearch {
    context: StreamContext,
    run: CrossCorrelation,
    scratch: DeviceBuffer<u8>,
}

impl NppSearch {
    /// Puts the scores of a template at every position where it fits into the stream.
    pub(super) fn run(
        &mut self,
        frame: &Frame,
        template: &Frame,
        scores: &mut DeviceBuffer<f32>,
    ) -> Result<()> {
        let map = template.size().positions_in(frame.size());
        assert!(scores.len() >= map.area(), "a score map of {map}");
        // SAFETY: planes, sizes and pitches are those of live buffers, the map has room, and the scratch
        // buffer has the size that NPP asked for.
        let code = unsafe {
            (self.run)(
                frame.pixels().address() as *const c_void,
                frame.pitch() as c_int,
                frame.size().into(),
                template.pixels().address() as *const c_void,
                template.pitch() as c_int,
                template.size().into(),
                scores.address() as *mut c_void,
                (map.width * size_of::<f32>()) as c_int,
                self.scratch.address() as *mut c_void,
                self.context,
            )
        };
        check("nppiCrossCorrValid_NormLevel_8u32f_C1R_Ctx", code)
    }
}

/// An adaptive threshold by NPP.
pub(super) struct NppThreshold {
    context: StreamContext,
    run: ThresholdAdaptive,
    block: c_int,
    c: f32,
}

impl NppThreshold {
    /// Puts the threshold of a frame into the stream.
    pub(super) fn run(&self, frame: &Frame, mask: &mut DeviceBuffer<u8>) -> Result<()> {
        assert!(mask.len() >= frame.size().area(), "a mask of {}", frame.size());
        // SAFETY: size and pitch are those of the frame's live buffer, and the mask has room.
        let code = unsafe {
            (self.run)(
                frame.pixels().address() as *const c_void,
                frame.pitch() as c_int,
                frame.size().into(),
                Pair(0, 0),
                mask.address() as *mut c_void,
                frame.size().width as c_int,
                frame.size().into(),
                Pair(self.block, self.block),
                self.c,
                255,
                0,
                REPLICATE,
                self.context,
            )
        };
        check("nppiFilterThresholdAdaptiveBoxBorder_8u_C1R_Ctx", code)
    }
}

/// cuFFT.
#[derive(Debug)]
pub(super) struct Fft {
    library: &'static Library,
}

type Plan2d = unsafe extern "C" fn(*mut c_int, c_int, c_int, c_int) -> c_int;
type SetStream = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;
type Destroy = unsafe extern "C" fn(c_int) -> c_int;
type Execute = unsafe extern "C" fn(c_int, *mut c_void, *mut c_void) -> c_int;

/// `CUFFT_R2C` and `CUFFT_C2R`.
const KINDS: [c_int; 2] = [0x2a, 0x2c];

impl Fft {
    /// Two plans for planes of one size.
    pub(super) fn transform(&self, gpu: &Gpu, stream: &Stream, size: Size) -> Result<Transform> {
        let mut transform = Transform {
            library: self.library,
            plans: Vec::new(),
            spectrum: gpu.alloc("a spectrum", 2 * (size.width / 2 + 1) * size.height)?,
            result: gpu.alloc("a plane", size.area())?,
        };
        for kind in KINDS {
            let mut plan = 0;
            // SAFETY: the functions of these names have these types; a plan is a number, which is written.
            unsafe {
                let make = self.library.get::<Plan2d>("cufftPlan2d").map_err(missing("cufftPlan2d"))?;
                check("cufftPlan2d", make(&raw mut plan, size.height as c_int, size.width as c_int, kind))?;
                transform.plans.push(plan);
                let set =
                    self.library.get::<SetStream>("cufftSetStream").map_err(missing("cufftSetStream"))?;
                check("cufftSetStream", set(plan, stream.handle().cast()))?;
            }
        }
        Ok(transform)
    }
}

/// A transform and its inverse.
pub(super) struct Transform {
    library: &'static Library,
    plans: Vec<c_int>,
    spectrum: DeviceBuffer<f32>,
    result: DeviceBuffer<f32>,
}

impl Transform {
    /// Puts both transforms of a plane into the stream.
    pub(super) fn run(&mut self, plane: &DeviceBuffer<f32>) -> Result<()> {
        assert_eq!(plane.len(), self.result.len(), "pixels of a plane");
        let steps = [
            ("cufftExecR2C", plane.address(), self.spectrum.address()),
            ("cufftExecC2R", self.spectrum.address(), self.result.address()),
        ];
        for ((name, from, to), plan) in steps.into_iter().zip(&self.plans) {
            // SAFETY: the function of that name has this type; both buffers have the room that a plan of this
            // size needs, and only the spectrum, which is ours, is ever written over by what reads it.
            unsafe {
                let execute = self.library.get::<Execute>(name).map_err(missing(name))?;
                check(name, execute(*plan, from as *mut c_void, to as *mut c_void))?;
            }
        }
        Ok(())
    }

    /// The result for the last plane.
    pub(super) fn result(&self) -> &DeviceBuffer<f32> {
        &self.result
    }
}

impl Drop for Transform {
    fn drop(&mut self) {
        for plan in &self.plans {
            // SAFETY: the function of that name has this type, and no other code has the plan.
            unsafe {
                if let Ok(destroy) = self.library.get::<Destroy>("cufftDestroy") {
                    destroy(*plan);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_context_lies_as_npp_has_it() {
        assert_eq!(size_of::<StreamContext>(), 48);
        assert_eq!(std::mem::offset_of!(StreamContext, shared_bytes), 24);
        assert_eq!(std::mem::offset_of!(StreamContext, flags), 40);
    }
}
