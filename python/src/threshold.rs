//! Adaptive thresholds.

use std::sync::Arc;

use lockon_core::backend::cpu::threshold;
use lockon_core::backend::{Backend, Options, Standing};
use lockon_core::config::ThresholdSpec;
use lockon_core::error::{Error, Result};
use lockon_core::frame::{Plane, Size};
use lockon_run::backend;
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use rayon::ThreadPool;

use crate::device;
use crate::failure::exception;
use crate::input::{self, Input};
use crate::matcher;
use crate::process::ForSize;

/// A threshold of one picture after the other.
#[pyclass(frozen, module = "lockon._lockon")]
pub(crate) struct Thresholder {
    spec: ThresholdSpec,
    options: Options,
    opened: ForSize<Opened>,
}

enum Opened {
    Cpu(Box<threshold::Thresholder>, Arc<ThreadPool>),
    Device(Box<dyn Backend>),
}

#[pymethods]
impl Thresholder {
    /// `is_for_one`: for pictures that have nothing to do with each other.
    #[new]
    fn new(spec: &str, device: &str, threads: Option<usize>, is_for_one: bool) -> PyResult<Self> {
        let spec: ThresholdSpec = spec.parse().map_err(exception)?;
        if is_for_one && spec.method.remembers() {
            let text = format!("threshold {spec} compares a picture with those before: use a Thresholder");
            return Err(exception(Error::Usage(text)));
        }
        Ok(Self { spec, options: device::options(device, threads)?, opened: ForSize::default() })
    }

    /// The thresholded picture: 255 where it is foreground, else 0.
    fn run<'py>(&self, image: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray2<u8>>> {
        let (py, input) = (image.py(), Input::of(image, "image")?);
        let Size { width, height } = input.size();
        let mask = py.detach(|| self.try_run(input)).map_err(exception)?;
        PyArray1::from_vec(py, mask).reshape([height, width])
    }
}

impl Thresholder {
    fn try_run(&self, input: Input) -> Result<Vec<u8>> {
        let (size, picture) = (input.size(), input.into_picture()?);
        let work = |opened: &mut Opened| match opened {
            Opened::Cpu(thresholder, pool) => {
                let mut mask = Plane::new(size);
                let luma = input::luma(&*picture)?;
                pool.install(|| thresholder.run(luma, &mut mask));
                Ok(mask.into_vec())
            }
            Opened::Device(device) => {
                let mask = matcher::find(&mut **device, &picture)?.mask;
                Ok(mask.map_or_else(Vec::new, |mask| mask.plane(0).to_plane().into_vec()))
            }
        };
        self.opened.with(size, || self.open(size), work)
    }

    fn open(&self, size: Size) -> Result<Opened> {
        let standing = || Ok(Standing::new(size).thresholding(Some(self.spec), true));
        if let Some(gpu) = backend::open_gpu(&self.options, standing)? {
            return Ok(Opened::Device(gpu));
        }
        let thresholder = Box::new(threshold::Thresholder::new(&self.spec, size));
        Ok(Opened::Cpu(thresholder, matcher::pool(self.options.threads)?))
    }
}
