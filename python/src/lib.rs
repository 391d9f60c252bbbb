//! The module `lockon._lockon`: what Python's `lockon` is made of. Arrays come in as numpy has them, work is
//! done without Python's lock, and results go out as tuples that `lockon/__init__.py` gives their names.

mod array;
mod device;
mod dlpack;
mod failure;
mod gpu_array;
mod input;
mod matcher;
mod process;
#[cfg(feature = "gst")]
mod run;
mod threshold;
mod tracker;

use pyo3::prelude::*;

#[pymodule]
fn _lockon(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("DeviceError", module.py().get_type::<failure::DeviceError>())?;
    module.add_class::<matcher::Matcher>()?;
    module.add_class::<threshold::Thresholder>()?;
    module.add_class::<tracker::Tracker>()?;
    #[cfg(feature = "gst")]
    module.add_class::<run::Run>()?;
    module.add_function(wrap_pyfunction!(device::devices, module)?)?;
    module.add_function(wrap_pyfunction!(matcher::score_map, module)?)
}
