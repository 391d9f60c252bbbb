//! `lockon doctor`: installed and missing parts, and the command that fixes it.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

use lockon::Error;
use lockon::backend::cuda::{self, DeviceInfo};
use lockon::backend::{Node, node_of};
use lockon::error::DeviceFault;
use lockon::media::doctor::{self, Finding, Health};

use super::{Outcome, print};

/// Prints one line a finding, and what to do about the bad ones. Fails (code 1) if something is missing that
/// lockon needs.
pub(super) fn doctor() -> Result<Outcome> {
    let mut findings = doctor::check();
    let gpus = gpus();
    let has_gpu = gpus.iter().any(|gpu| gpu.health == Health::Good);
    findings.extend(gpus);
    if has_gpu {
        findings.extend(doctor::nvidia());
    }
    let mut report = String::new();
    for finding in &findings {
        let mark = match finding.health {
            Health::Good => "ok     ",
            Health::Absent => "absent ",
            Health::Bad => "MISSING",
        };
        writeln!(report, "{mark}  {}: {}", finding.subject, finding.detail)?;
        if let Some(fix) = &finding.fix {
            writeln!(report, "         fix: {fix}")?;
        }
    }
    if let Some(command) = doctor::install_command(&findings) {
        writeln!(report, "\nall missing packages at once: {command}")?;
    }
    print(&report)?;
    let is_bad = findings.iter().any(|finding| finding.health == Health::Bad);
    Ok(if is_bad { Outcome::Incomplete } else { Outcome::Done })
}

/// The first NVIDIA driver with CUDA 12.1, for which the kernels are compiled.
const OLDEST_DRIVER: u32 = 530;

/// Exists when the driver is loaded, whether or not its library is installed.
const LOADED_DRIVER: &str = "/proc/driver/nvidia/version";

/// A finding for each GPU, or why there is none: lockon works without.
fn gpus() -> Vec<Finding> {
    let absent = |error| absent(error, Path::new(LOADED_DRIVER).exists());
    match cuda::devices() {
        Ok(devices) if devices.is_empty() => {
            vec![absent(Error::Backend {
                backend: "cuda",
                fault: DeviceFault::NoSuchDevice { asked: 0, count: 0 },
            })]
        }
        Ok(devices) => {
            let found = |info: &DeviceInfo| {
                cuda::device(info.number).map_or_else(absent, |info| {
                    let node = node_of(Path::new("/"), &info.pci);
                    good(info, node)
                })
            };
            devices.iter().map(found).collect()
        }
        Err(error) => vec![absent(error)],
    }
}

/// `node`: the GPU's, on a host that has several.
fn good(info: DeviceInfo, node: Option<Node>) -> Finding {
    let DeviceInfo { number, name, capability, memory, driver, .. } = info;
    let memory = memory as f64 / f64::from(1 << 30);
    let mut detail = format!(
        "{name} (--backend cuda:{number}), compute capability {capability}, {memory:.1} GiB, driver for CUDA {driver}"
    );
    if let Some(Node { number, list, .. }) = node {
        let _ = write!(
            detail,
            ", beside processors {list} (NUMA node {number}), to which runs with --backend cuda keep"
        );
    }
    Finding { subject: "cuda".into(), health: Health::Good, detail, fix: None }
}

/// Returns a finding for a device that cannot be used. `is_loaded`: the driver is loaded, whether or not its
/// library is there.
fn absent(error: Error, is_loaded: bool) -> Finding {
    let newer = format!("install NVIDIA's driver {OLDEST_DRIVER} or newer");
    // Without the backend's name, which is the subject. A device that exists but cannot be used needs a full
    // explanation.
    let (detail, health, fix) = match error {
        Error::Backend { fault, .. } => {
            let (health, fix) = match fault {
                DeviceFault::NoDriver { .. } if is_loaded => {
                    (Health::Bad, Some("its library is missing: apt-get install libcuda1".into()))
                }
                DeviceFault::NoDriver { .. } => (Health::Absent, Some(newer)),
                DeviceFault::DriverTooOld { .. } => (Health::Bad, Some(newer)),
                DeviceFault::NoSuchDevice { .. }
                | DeviceFault::DeviceTooOld { .. }
                | DeviceFault::NotBuilt => (Health::Absent, None),
                _ => (Health::Bad, Some("look at nvidia-smi; the driver may not match its library".into())),
            };
            (fault.to_string(), health, fix)
        }
        error => (error.to_string(), Health::Bad, None),
    };
    Finding { subject: "cuda".into(), health, detail, fix }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockon::error::CudaVersion;

    #[test]
    fn a_gpu_is_told_with_what_decides_whether_it_can_be_used() {
        let version = |major, minor| CudaVersion { major, minor };
        let info = DeviceInfo {
            number: 1,
            name: "NVIDIA H100".into(),
            capability: version(9, 0),
            memory: 85 << 30,
            driver: version(12, 4),
            pci: "0000:1b:00.0".into(),
        };
        let told = "NVIDIA H100 (--backend cuda:1), compute capability 9.0, 85.0 GiB, driver for CUDA 12.4";
        assert_eq!(good(info.clone(), None).detail, told);
        let node = Node { number: 1, list: "16-31".into(), processors: (16..32).collect() };
        let beside = ", beside processors 16-31 (NUMA node 1), to which runs with --backend cuda keep";
        assert_eq!(good(info, Some(node)).detail, format!("{told}{beside}"));
    }

    #[test]
    fn a_driver_is_only_asked_for_where_it_fixes_something() {
        let fault = |fault| absent(Error::Backend { backend: "cuda", fault }, false);
        let none = fault(DeviceFault::NoDriver { library: "libcuda.so.1" });
        assert_eq!(none.health, Health::Absent);
        assert!(none.detail.starts_with("no NVIDIA driver"), "{}", none.detail);
        assert_eq!(none.fix.unwrap(), "install NVIDIA's driver 530 or newer");
        assert_eq!(fault(DeviceFault::NoSuchDevice { asked: 0, count: 0 }).fix, None);
        let half =
            Error::Backend { backend: "cuda", fault: DeviceFault::NoDriver { library: "libcuda.so.1" } };
        let half = absent(half, true);
        assert_eq!((half.health, half.fix.unwrap().contains("libcuda1")), (Health::Bad, true));
    }
}
