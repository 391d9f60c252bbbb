//! Checks whether there is a GPU that a driver could make usable: without one no driver is needed.

use std::fs;
use std::path::Path;

/// NVIDIA's vendor number in PCI devices.
const NVIDIA: &str = "0x10de";
/// The prefix of the PCI class of displays and 3D controllers.
const DISPLAY: &str = "0x03";

/// True if the system below `root` (`/`, but for tests) has a GPU of NVIDIA or traces of its driver. Always
/// true where this cannot be checked: on every system but Linux.
pub fn may_have_gpu(root: &Path) -> bool {
    if !cfg!(target_os = "linux") {
        return true;
    }
    let has_device_file = entries(&root.join("dev")).any(|name| name.starts_with("nvidia"));
    let has_driver = root.join("proc/driver/nvidia").exists();
    let devices = root.join("sys/bus/pci/devices");
    let says = |device: &str, file: &str, what: &str| {
        fs::read_to_string(devices.join(device).join(file)).is_ok_and(|text| text.starts_with(what))
    };
    let is_gpu = |device: String| says(&device, "vendor", NVIDIA) && says(&device, "class", DISPLAY);
    has_device_file || has_driver || entries(&devices).any(is_gpu)
}

/// Names in a folder; none if it cannot be read.
fn entries(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn device_files_the_driver_and_the_bus_each_tell_of_a_gpu() {
        let system = |files: &[(&str, &str)]| {
            let dir = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let path = dir.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            may_have_gpu(dir.path())
        };
        let on_bus = |vendor: &str, class: &str| {
            let device = "sys/bus/pci/devices/0000:01:00.0";
            system(&[(&format!("{device}/vendor"), vendor), (&format!("{device}/class"), class)])
        };
        assert!(!system(&[]), "an empty system has none");
        assert!(!system(&[("dev/null", ""), ("proc/driver/rtc", "")]));
        assert!(system(&[("dev/nvidia0", "")]));
        assert!(system(&[("proc/driver/nvidia/version", "")]));
        assert!(on_bus("0x10de\n", "0x030200\n"), "a 3D controller");
        assert!(!on_bus("0x10de\n", "0x020000\n"), "a network card of the same maker");
        assert!(!on_bus("0x1002\n", "0x030000\n"), "a display of another");
    }
}
