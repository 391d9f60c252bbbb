//! GPUs and processors as Linux lists them: whether there is a GPU that a driver could make usable, and which
//! processors are beside it.

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
        read(&devices.join(device).join(file)).is_some_and(|text| text.starts_with(what))
    };
    let is_gpu = |device: String| says(&device, "vendor", NVIDIA) && says(&device, "class", DISPLAY);
    has_device_file || has_driver || entries(&devices).any(is_gpu)
}

/// A NUMA node of the host, mostly a socket: processors, and the memory and devices beside them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The number that Linux gives it.
    pub number: usize,
    /// Its processors, as Linux lists them: `0-15,32-47`.
    pub list: String,
    /// Their numbers.
    pub processors: Vec<usize>,
}

/// Returns the node of a device, by its address on the PCI bus, of the system below `root` (`/`, but for
/// tests). `None` on a host with one node, and for devices whose node is unknown.
pub fn node_of(root: &Path, pci: &str) -> Option<Node> {
    let node = |number: usize| {
        let list = read(&root.join(format!("sys/devices/system/node/node{number}/cpulist")))?;
        let processors = numbers(&list)?;
        (!processors.is_empty()).then_some(Node { number, list, processors })
    };
    let all = entries(&root.join("sys/devices/system/node"));
    let with_processors = all.filter_map(|name| node(name.strip_prefix("node")?.parse().ok()?));
    if with_processors.count() < 2 {
        return None;
    }
    // It is -1 if the firmware names no node.
    let number = read(&root.join("sys/bus/pci/devices").join(pci).join("numa_node"))?;
    node(number.parse().ok()?)
}

/// The numbers of a list as Linux writes it: `0-3,8`. `None` if it is none.
fn numbers(list: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for range in list.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Names in a folder; none if it cannot be read.
fn entries(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// A system of these files.
    fn with_system<T>(files: &[(&str, &str)], look: impl FnOnce(&Path) -> T) -> T {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        look(dir.path())
    }

    #[test]
    fn the_processors_beside_a_gpu_are_its_nodes_if_the_host_has_several() {
        let node = |number: usize| format!("sys/devices/system/node/node{number}/cpulist");
        let gpu = |pci: &str| format!("sys/bus/pci/devices/{pci}/numa_node");
        let (nodes, gpus) = ([0, 1, 2].map(node), ["0000:1b:00.0", "0000:ca:00.0", "0000:06:00.0"].map(gpu));
        let two = [
            (&*nodes[0], "0-1,8-9\n"),
            (&*nodes[1], "2-3,10\n"),
            (&*nodes[2], "\n"), // memory alone
            ("sys/devices/system/node/has_cpu", "0-1\n"),
            (&*gpus[0], "0\n"),
            (&*gpus[1], "1\n"),
            (&*gpus[2], "-1\n"),
        ];
        let of = |files: &[_], pci| with_system(files, |root| node_of(root, pci));
        let beside = |pci| of(&two, pci).map(|node| (node.number, node.list, node.processors));
        assert_eq!(beside("0000:1b:00.0"), Some((0, "0-1,8-9".into(), vec![0, 1, 8, 9])));
        assert_eq!(beside("0000:ca:00.0"), Some((1, "2-3,10".into(), vec![2, 3, 10])));
        assert_eq!([beside("0000:06:00.0"), beside("0000:ff:00.0")], [None, None], "Linux does not tell");
        // All processors are beside it.
        let one = [(&*nodes[0], "0-15\n"), (&*gpus[0], "0\n")];
        assert_eq!(of(&one, "0000:1b:00.0"), None);
        assert_eq!(
            of(&[(&*nodes[0], "zero\n"), (&*nodes[1], "1-\n"), (&*gpus[0], "0\n")], "0000:1b:00.0"),
            None
        );
    }

    #[test]
    fn device_files_the_driver_and_the_bus_each_tell_of_a_gpu() {
        let system = |files: &[(&str, &str)]| with_system(files, may_have_gpu);
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
