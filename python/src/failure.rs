//! Errors as Python has them, with the words of the program.

use lockon_core::error::Error;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::{PyErr, create_exception};

create_exception!(
    lockon,
    DeviceError,
    PyRuntimeError,
    "A device cannot do the work: it is not there, too old, or has failed."
);

/// The exception for an error.
#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
pub(crate) fn exception(error: Error) -> PyErr {
    let words = error.to_string();
    match error {
        Error::Backend { .. } => DeviceError::new_err(words),
        Error::MemoryLimit { .. } | Error::NoMemory { .. } => PyMemoryError::new_err(words),
        _ => PyValueError::new_err(words),
    }
}
