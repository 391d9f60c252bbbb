//! Devices, and which one a caller wants.

use lockon_core::config::BackendChoice;
use lockon_core::message::Dialect;
use lockon_run::backend::{Options, cuda};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::failure::exception;

/// The options for a device by its name, as `--backend` has it, and for so many threads of the CPU.
pub(crate) fn options(device: &str, threads: Option<usize>) -> PyResult<Options> {
    let choice: BackendChoice = device.parse().map_err(exception)?;
    let threads = match threads {
        Some(0) => return Err(PyValueError::new_err("threads is 0: at least 1 is needed")),
        Some(threads) => threads,
        None => Options::default().threads,
    };
    // A call waits for its own frame, so there is never a second one.
    Ok(Options { choice, threads, depth: 1, alone: true, ..Options::default() })
}

/// The GPUs: the name for `device=`, what it is called, its bytes of memory, and why it cannot be used, if
/// so; and why there are none.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "`lockon.Device` gives these their names")]
pub(crate) fn devices(py: Python<'_>) -> (Vec<(String, String, usize, Option<String>)>, Option<String>) {
    match py.detach(cuda::devices) {
        Ok(gpus) => {
            let row = |gpu: cuda::DeviceInfo| {
                let why_not = cuda::device(gpu.number).err().map(|error| error.told(Dialect::Arguments));
                (format!("cuda:{}", gpu.number), gpu.name, gpu.memory, why_not)
            };
            (gpus.into_iter().map(row).collect(), None)
        }
        Err(error) => (Vec::new(), Some(error.told(Dialect::Arguments))),
    }
}
