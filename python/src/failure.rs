//! Errors as Python's exceptions, in the program's words with Python's names of arguments.

use lockon_core::error::{DeviceFault, Error};
use lockon_core::message::Dialect;
use pyo3::exceptions::{PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::{PyErr, create_exception};

create_exception!(
    lockon,
    DeviceError,
    PyRuntimeError,
    "A device cannot do the work: it is not there, too old, or has failed."
);

/// The exception for an error.
pub(crate) fn exception(error: Error) -> PyErr {
    let words = error.told(Dialect::Arguments);
    match error {
        Error::Backend {
            fault: DeviceFault::OutOfMemory { .. } | DeviceFault::OutOfHostMemory { .. },
            ..
        }
        | Error::MemoryLimit { .. }
        | Error::NoMemory { .. } => PyMemoryError::new_err(words),
        Error::Backend { .. } => DeviceError::new_err(words),
        Error::File { cause, path, .. } => match cause.raw_os_error() {
            // Python makes it a `FileNotFoundError` or what else the number means.
            Some(number) => PyOSError::new_err((number, words, path.into_os_string())),
            None => PyOSError::new_err(words),
        },
        Error::Output { .. } | Error::Resource { .. } => PyOSError::new_err(words),
        Error::Pipeline { .. } | Error::Panicked { .. } => PyRuntimeError::new_err(words),
        _ => PyValueError::new_err(words),
    }
}
