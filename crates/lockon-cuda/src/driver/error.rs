//! Turns failures that the driver reports into errors of the backend.

use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUresult;

use lockon_core::error::{DeviceFault, Error};

/// An error of the CUDA backend.
pub fn fault(fault: DeviceFault) -> Error {
    Error::Backend { backend: "cuda", fault }
}

/// Converts the driver's error, for `map_err`, and adds the action that failed. Errors that end a context are
/// distinguished from the others.
pub fn failed(doing: &'static str) -> impl FnOnce(DriverError) -> Error {
    move |error| {
        let reason = format!("{doing}: {}", said(error));
        fault(if is_fatal(error) { DeviceFault::Lost { reason } } else { DeviceFault::Other(reason) })
    }
}

/// As [`failed`] where there is no device yet that could be lost.
pub(super) fn failed_to_open(doing: &'static str) -> impl FnOnce(DriverError) -> Error {
    move |error| fault(DeviceFault::Other(format!("{doing}: {}", said(error))))
}

pub(super) fn said(DriverError(code): DriverError) -> String {
    let text = DriverError(code).error_string().map(|text| text.to_string_lossy().into_owned());
    format!("{} ({code:?})", text.unwrap_or_else(|_| "unknown error".into()))
}

/// After these nothing more can be done in the context ("sticky" errors), or the device is gone.
pub(super) fn is_fatal(DriverError(code): DriverError) -> bool {
    matches!(
        code,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUresult::CUDA_ERROR_DEINITIALIZED
            | CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE
            | CUresult::CUDA_ERROR_EXTERNAL_DEVICE
            | CUresult::CUDA_ERROR_CONTAINED
            | CUresult::CUDA_ERROR_UNKNOWN
    )
}
