//! Times the kernels on this machine, and checks each against the definition before its time counts.

#![cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "without a GPU less is measured"))]

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use lockon_core::backend::{Backend, Options, Standing, cpu as cpu_backend};
use lockon_core::config::BackendChoice;
use lockon_core::frame::Size;

use plan::{Work, check_request};
use table::Report;

mod check;
mod cpu;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(not(feature = "cuda"))]
#[path = "no_gpu.rs"]
mod gpu;
mod plan;
mod scene;
mod table;

pub use plan::{Request, Subject};
pub use scene::natural;

/// Writes text to standard output.
pub type Print = fn(&str) -> lockon_core::Result<()>;

/// Measures, and prints a table line by line with `print`, or JSON at the end; `say` prints messages for
/// people.
///
/// # Errors
/// `Usage` if the request has no meaning; errors of the device and of `print`; a wrong answer.
pub fn kernels(args: &Request, print: Print, say: fn(&str)) -> Result<()> {
    check_request(args)?;
    let mut work = Work::new(args, print, say);
    let number = match args.backend {
        BackendChoice::Cpu => None,
        BackendChoice::Cuda(number) => Some(number),
        BackendChoice::CudaOf(gpus) => Some(gpus.first()),
        BackendChoice::Auto => match gpu::first() {
            Ok(number) => Some(number),
            // The chosen kernels and peers need a GPU.
            Err(why) if !args.kernel.is_empty() || args.peers => return Err(why.into()),
            Err(why) => {
                tracing::warn!("the CPU is measured: {why}");
                None
            }
        },
    };
    let (device, driver, timing) = if let Some(number) = number {
        gpu::measure(&mut work, number)?
    } else {
        let threads = args.threads();
        let options = Options { depth: 1, threads, ..Options::default() };
        let device = cpu_backend::Cpu::open(Standing::new(Size::new(64, 64)), &options)?.describe();
        work.header(&device.name)?;
        work.on_cpu(threads)?;
        (device.name, None, "the processor's clock, input in its cache")
    };
    if args.json {
        let report = Report {
            device,
            driver,
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("LOCKON_COMMIT").unwrap_or("unknown"),
            date: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            timing,
            rows: work.rows,
        };
        print(&(serde_json::to_string_pretty(&report)? + "\n"))?;
    }
    Ok(())
}
